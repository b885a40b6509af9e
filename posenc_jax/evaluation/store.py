"""Finished cells on disk, by what they were computed from: the same model, encoding and tokens are
the same cell, whichever extension, protocol or evaluation asked for it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax

from posenc_jax.evaluation.records import Sums, load_arrays, save_arrays
from posenc_jax.exits import Stop
from posenc_jax.training.checkpoints import digests
from posenc_jax.training.parts import by_path

FORMAT = 1  # of what a cell means; another number finds no older cell


def tree_key(tree: Any) -> str:
    """Of structure, with what is static in it, and of every leaf."""
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
        """None as well for a file that cannot be read: it is computed again."""
        try:
            stored = load_arrays(self.folder / f"{name}.npz")
            return Sums(*(stored[field] for field in Sums._fields))
        except (Stop, KeyError):
            return None

    def put(self, name: str, sums: Sums) -> None:
        save_arrays(self.folder / f"{name}.npz", **sums._asdict())
