"""Looks: what shares a picture is told apart, by readers who are colour-blind too."""

from itertools import combinations

import jax
import numpy as np
import pytest
from running import committed
from sizes import DIMS

import posenc_jax
from posenc_jax import extensions, registry
from posenc_jax.plots import style

FAR = 20.0  # of CIE 1976 distances of colours: one of 2 is just seen side by side
ALIKE = ("o8hHp", "Dd")  # marks that look alike at their size
# Machado, Oliveira and Fernandes 2009, at full severity, on linear RGB.
SIGHTS = {
    "full": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(colour, sight):
    shown = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    x, y, z = XYZ @ np.clip(SIGHTS[sight] @ linear, 0, 1) / WHITE
    x, y, z = (v ** (1 / 3) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one, other):
    """The smallest one, over readers."""
    return min(np.linalg.norm(lab(one, sight) - lab(other, sight)) for sight in SIGHTS)


def told_apart(one, other):
    marks = {one["marker"], other["marker"]}
    same_mark = len(marks) == 1 or any(marks <= set(family) for family in ALIKE)
    dashed = one["linestyle"] != other["linestyle"]
    return dashed or not same_mark or distance(one["color"], other["color"]) >= FAR


def test_distances_of_colours_are_those_of_the_textbook():
    assert distance("#FFFFFF", "#000000") == pytest.approx(100, abs=0.1)
    full = np.linalg.norm(lab("#FF0000", "full") - lab("#00FF00", "full"))
    assert full == pytest.approx(170.6, abs=0.3) and distance("#FF0000", "#00FF00") < 0.7 * full


def test_committed_results_have_a_look():
    """A new file is drawn by a look that is derived from its name."""
    assert set(committed(registry.encodings(), "posenc_jax", "schemes")) <= set(style.ENCODINGS)
    made_by = {name: record.apply.__name__ for name, record in extensions.records().items()}
    known = committed(set(made_by.values()), "posenc_jax", "extensions")
    assert {name for name, made in made_by.items() if made in known} <= set(style.EXTENSIONS)
    assert set(style.ENCODINGS) <= set(registry.encodings())
    assert style.look_of("new") == style.look_of("new") not in style.ENCODINGS.values()


def test_encodings_are_visually_distinct():
    names = list(style.ENCODINGS)
    looks = {name: style.look_of_encoding(name) for name in names}
    assert [p for p in combinations(names, 2) if not told_apart(*(looks[n] for n in p))] == []


@pytest.mark.parametrize("name", registry.encodings())
def test_extensions_of_an_encoding_are_visually_distinct(name):
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(0))
    named = [one for one in extensions.fitting(encoding) if one in style.EXTENSIONS]
    looks = {one: style.look_of_method(one) for one in named}
    looks["none"] = style.look_of_encoding(name)
    looks |= {f"{one}+logn": style.look_of_method(f"{one}+logn") for one in ("yarn", "pi")}
    assert [p for p in combinations(looks, 2) if not told_apart(*(looks[n] for n in p))] == []


METHODS = ["none", "logn", "yarn:8", "dynamic_yarn", "yarn:8+logn", "yarn:8:beta_fast=16"]
METHODS += ["yarn:8:beta_fast=24+logn", "yarn:8:beta_fast=48", "window", "rerope", "streaming"]


@pytest.mark.parametrize("encoding", ["sandwich", "rope"])
def test_no_two_methods_of_an_encoding_look_alike(encoding):
    looks = style.looks_of_methods(encoding, METHODS)
    assert len(set(map(str, looks))) == len(METHODS)
    assert looks[0]["color"] == style.ENCODINGS[encoding][0]


def test_a_look_that_is_free_stays():
    look = style.look_of_method("none")
    first, second, third = style.distinct([look, look | {"marker": "s"}, look])
    assert (first, second) == (look, look | {"marker": "s"})
    assert third == look | {"linestyle": "--"}
    many = style.distinct([look] * 20)
    assert len(set(map(str, many))) == 20
