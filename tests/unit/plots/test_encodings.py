"""Pictures of encodings: what their titles and marks say."""

import jax
import numpy as np
import pytest
from sizes import DIMS, L

import posenc_jax
from posenc_jax.plots import encodings

BIASES = ("alibi", "t5", "kerple_log", "kerple_power", "fire", "sandwich", "learned", "fox")


@pytest.mark.parametrize("name", BIASES)
def test_pictures_of_random_arrays_are_labelled(name):
    one, other = (posenc_jax.build(name, DIMS, key=jax.random.key(seed)) for seed in (0, 1))
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    random = any(not np.array_equal(a, b) for a, b in pairs)
    assert ("random" in encodings.title(one, None)) == random
    assert encodings.title(one, "run-s0") == f"{name} of run-s0"


def test_windows_chunks_and_full_layers_look_different():
    both = {
        word: posenc_jax.build("hybrid", DIMS, window=L // 2, chunked=word == "chunks")
        for word in ("windows", "chunks")
    }
    figure = encodings.windows(both, 4, 2 * L)
    names = [[text.get_text() for text in axes.get_legend().texts] for axes in figure.axes]
    assert names == [
        ["rope, a window", "nope, everything"],
        ["rope, its chunk", "nope, everything"],
    ]
    widths = [[bar.get_width() for bar in axes.patches] for axes in figure.axes]
    assert widths == [[L // 2] * 3 + [2 * L]] * 2
    hatches = [bar.get_hatch() for axes in figure.axes for bar in axes.patches]
    assert len(set(hatches)) == 3
