"""A cell of an evaluation: its facts and sums, its key, and the finished cells of one that was
interrupted."""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from posenc_jax import composition
from posenc_jax.runs.checkpoints import digests
from posenc_jax.runtime.files import write_atomically
from posenc_jax.runtime.terminal import warn
from posenc_jax.runtime.trees import by_path


class Cell(NamedTuple):
    """A number of an evaluation: the columns that identify it, and its sums in float64 by document
    and by place in the window.

    The null needs two more sums over targets with fewer than L tokens before them, scored or not
    (`within`), and over the last quarter of these (`tail`): of windows of L, and where places are
    compared; 0 elsewhere.
    """

    facts: dict[str, Any]
    nats: np.ndarray  # [D]
    tokens: np.ndarray  # [D]
    bytes: np.ndarray  # [D]; 0 where the tokenizer loses text
    answers: np.ndarray  # [D], marked targets
    right: np.ndarray  # [D], marked targets ranked first
    older_right: np.ndarray  # [D], marked targets for which an older value ranked first
    early: np.ndarray  # [D], scored targets that see L tokens or fewer
    within_nats: np.ndarray  # [D]
    within_tokens: np.ndarray  # [D]
    tail_nats: np.ndarray  # [D]
    tail_tokens: np.ndarray  # [D]
    by_place: np.ndarray  # [length], nats over all windows; empty where places are not compared
    windows: np.ndarray  # [1]

    def by_unit(self, units: np.ndarray | None) -> "Cell":
        """Sum the documents of each unit, since files of one package are not independent."""
        if units is None:
            return self
        return self._replace(**{n: np.bincount(units, getattr(self, n)) for n in DOCUMENTS})


SUMS = Cell._fields[1:]
DOCUMENTS = SUMS[:11]


# Columns that identify a curve, and those that make two cells comparable where they are equal.
CURVE = ("evaluation", "run", "seed", "step", "extension", "scale", "window")
TARGETS = ("token_hash", "stride", "last")
FRESH = "fresh"  # a row of the last L tokens


def curve_of(facts: Mapping) -> tuple:
    return tuple(facts[name] for name in CURVE)


def by_part(cells: Sequence[Cell]) -> list[dict[str, Cell]]:
    """For each cell, those of its curve, protocol and length by part, itself included."""
    keys = [(*curve_of(c.facts), c.facts["protocol"], c.facts["length"]) for c in cells]
    found: dict[tuple, dict[str, Cell]] = {key: {} for key in keys}
    for key, cell in zip(keys, cells, strict=True):
        found[key][cell.facts["part"]] = cell
    return [found[key] for key in keys]


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


FORMAT = 5  # version of a cell's contents; a new number ignores all older cells


def tree_key(tree: Any) -> str:
    """Hash of a pytree: structure, static fields and leaves."""
    return cell_key(structure=str(jax.tree.structure(tree)), leaves=digests(by_path(tree)))


def model_key(config: Any, leaves: Mapping[str, str]) -> str:
    return cell_key(config=repr(config), leaves=leaves)


def cell_key(**facts: Any) -> str:
    text = json.dumps(facts | {"format": FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    """Finished cells, by key and without their facts, which several cells may share."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> Cell | None:
        """Load a finished cell; None if it is missing or damaged."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            return None
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                if str(stored["key"]) != name:
                    raise ValueError(f"it holds the cell {stored['key']}")
                return Cell({}, *(stored[field] for field in SUMS))
        except Exception as error:  # a damaged archive raises many kinds
            warn(f"{path} is computed again: {error}")
            return None

    def put(self, name: str, cell: Cell) -> None:
        stream, sums = io.BytesIO(), {field: getattr(cell, field) for field in SUMS}
        np.savez(stream, allow_pickle=False, key=np.array(name), **sums)
        write_atomically(self.folder / f"{name}.npz", stream.getvalue())
