"""Pictures of encodings: what their titles and marks say."""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from sizes import DIMS, L

import posenc_jax
from posenc_jax import layers
from posenc_jax.evaluation import diagnostics
from posenc_jax.plots.encodings import heat_maps, title, windows
from posenc_jax.report import diagnosis
from posenc_jax.schemes.rope import RoPE

BIASES = ("alibi", "t5", "kerple_log", "kerple_power", "fire", "sandwich", "learned", "fox")


@pytest.mark.parametrize("name", BIASES)
def test_pictures_of_random_arrays_are_labelled(name):
    one, other = (posenc_jax.build(name, DIMS, key=jax.random.key(seed)) for seed in (0, 1))
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    random = any(not np.array_equal(a, b) for a, b in pairs)
    assert ("random" in title(one, None)) == random
    assert title(one, "run-s0") == f"{name} of run-s0"


def test_windows_chunks_and_full_layers_look_different():
    both = {
        word: posenc_jax.build("hybrid", DIMS, window=L // 2, chunked=word == "chunks")
        for word in ("windows", "chunks")
    }
    figure = windows(both, 4, 2 * L)
    names = [[text.get_text() for text in axes.get_legend().texts] for axes in figure.axes]
    assert names == [
        ["rope, a window", "nope, everything"],
        ["rope, its chunk", "nope, everything"],
    ]
    widths = [[bar.get_width() for bar in axes.patches] for axes in figure.axes]
    assert widths == [[L // 2] * 3 + [2 * L]] * 2
    hatches = [bar.get_hatch() for axes in figure.axes for bar in axes.patches]
    assert len(set(hatches)) == 3


def portraits_of(monkeypatch, **encodings):
    """Portraits of runs that have these encodings, each in a folder of its name."""
    subjects = {name: SimpleNamespace(plain=one, name=name) for name, one in encodings.items()}
    monkeypatch.setattr(diagnosis, "load_subject", lambda folder: subjects[folder.name])
    return diagnosis.Portraits(DIMS, [Path(name) for name in encodings])


@pytest.mark.parametrize("name", ["t5", "fire"])
def test_of_a_run_with_an_encoding_per_layer_the_first_is_drawn(name, monkeypatch):
    layered = layers.stack([posenc_jax.build(name, DIMS, key=jax.random.key(i)) for i in range(3)])
    drawn = portraits_of(monkeypatch, run=layered)
    bias = diagnostics.bias_by_distance(drawn.of(name), L)
    np.testing.assert_array_equal(bias, diagnostics.bias_by_distance(layered.layer(0), L))
    assert list(drawn.titled(name)) == [f"{name} of run, layer 0"]


def test_a_rope_with_a_sink_is_drawn_as_a_rope(monkeypatch):
    sink = posenc_jax.build("rope", DIMS, sink=True, key=jax.random.key(0))
    assert isinstance(portraits_of(monkeypatch, run=sink).of("rope"), RoPE)


def test_matrices_side_by_side_share_one_scale_of_colours():
    one, other = np.array([[0.0, 1.0]]), np.array([[4.0, np.nan]])
    figure = heat_maps({"a": one, "b": other})
    images = [image for axes in figure.axes[:2] for image in axes.images]
    assert {image.get_clim() for image in images} == {(0.0, 4.0)}
