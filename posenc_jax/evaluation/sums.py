"""The sums measured in a cell, before it becomes a row."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from posenc_jax import composition


class Sums(NamedTuple):
    """Sums of a cell in float64, by document and by place in the window.

    The null needs two more sums over targets with fewer than L tokens before them, scored or not
    (`within`), and over the last quarter of these (`tail`): of windows of L, and where places are
    compared; 0 elsewhere.
    """

    nats: np.ndarray  # [D]
    tokens: np.ndarray  # [D]
    bytes: np.ndarray  # [D]; 0 where the tokenizer loses text
    answers: np.ndarray  # [D], marked targets
    right: np.ndarray  # [D], marked targets ranked first
    early: np.ndarray  # [D], scored targets that see L tokens or fewer
    within_nats: np.ndarray  # [D]
    within_tokens: np.ndarray  # [D]
    tail_nats: np.ndarray  # [D]
    tail_tokens: np.ndarray  # [D]
    by_place: np.ndarray  # [length], nats over all windows; empty where places are not compared
    windows: np.ndarray  # [1]

    def by_unit(self, units: np.ndarray | None) -> "Sums":
        """Sum the documents of each unit, since files of one package are not independent."""
        if units is None:
            return self
        return self._replace(**{n: np.bincount(units, getattr(self, n)) for n in DOCUMENTS})


DOCUMENTS = Sums._fields[:10]


class Measured(NamedTuple):
    """A cell: the columns that identify it, and its sums."""

    facts: dict
    sums: Sums


# Columns that identify a curve, and those that make two cells comparable where they are equal.
CURVE = ("evaluation", "run", "seed", "step", "extension", "scale", "window")
TARGETS = ("token_hash", "stride", "last")
FRESH = "fresh"  # a row of the last L tokens


def curve_of(facts: Mapping) -> tuple:
    return tuple(facts[name] for name in CURVE)


def targets_of(facts: Mapping) -> tuple:
    return tuple(facts[name] for name in TARGETS)


# Methods that read no further than L, so that none is ranked, with words for tables.
BASELINES = {"window": "window of L", FRESH: "fresh row of L", "streaming": "streaming"}


def is_baseline(facts: Mapping) -> bool:
    return label(facts) in BASELINES


def label(facts: Mapping) -> str:
    """Name of a row's method in tables, pictures, wandb and command lines."""
    name = facts["extension"]
    if name == "none" and facts["window"]:
        return "window"
    if facts["scale"] is not None:
        name = composition.with_scale(name, facts["scale"])
    return f"{name}:size={facts['window']}" if facts["window"] else name
