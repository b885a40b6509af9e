"""Finished cells on disk, keyed by what they were computed from: the same model, encoding and
tokens are the same cell, whichever extension, protocol or evaluation asked for it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posenc_jax.errors import Stop
from posenc_jax.evaluation.records import Sums, load_arrays, save_arrays
from posenc_jax.runs.checkpoints import digests
from posenc_jax.runs.parameters import by_path
from posenc_jax.terminal import warn

FORMAT = 2  # of the meaning of a cell; another number finds no older cell


def tree_key(tree: Any) -> str:
    """Hash of a pytree: structure, static fields and leaves."""
    return key(structure=str(jax.tree.structure(tree)), leaves=digests(by_path(tree)))


def model_key(model) -> str:
    return key(config=repr(model.config), leaves=digests(by_path(model)))


def key(**facts: Any) -> str:
    text = json.dumps(facts | {"format": FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    def __init__(self, folder: Path):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> Sums | None:
        """A finished cell; None where it is missing or not what was written under its name."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            return None
        try:
            stored = load_arrays(path, sealed=True)
            if str(stored["key"]) != name:
                raise ValueError(f"it holds the cell {stored['key']}")
            sums = Sums(*(stored[field] for field in Sums._fields))
            sums.check()
            return sums
        except (Stop, KeyError, ValueError) as error:
            warn(f"{path} is computed again: {error}")
            return None

    def put(self, name: str, sums: Sums) -> None:
        save_arrays(self.folder / f"{name}.npz", key=np.array(name), **sums._asdict())
