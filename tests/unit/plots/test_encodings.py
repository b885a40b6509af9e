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
from posenc_jax.plots.encodings import remapped, title
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


def test_maps_side_by_side_share_one_scale_of_colours():
    images = [image for axes in remapped(16, 8).axes[:-1] for image in axes.images]
    assert len({image.get_clim() for image in images}) == 1 < len(images)


def test_every_bias_of_the_registry_is_drawn_and_a_run_without_one_is_said(monkeypatch, capsys):
    drawn = set(filter(portraits_of(monkeypatch).has_bias, posenc_jax.schemes.names()))
    assert {*BIASES, "dape"} - {"learned"} <= drawn and not drawn & {"rope", "nope", "learned"}
    nope, alibi = (posenc_jax.build(name, DIMS) for name in ("nope", "alibi"))
    portraits_of(monkeypatch, run=nope, other=alibi)
    assert "run: 'nope' has no picture" in (said := "".join(capsys.readouterr()))
    assert "alibi" not in said
