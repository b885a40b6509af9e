"""Finished cells on disk, keyed by their inputs: one model, encoding and set of tokens is one cell,
whichever extension, protocol or evaluation needs it."""

import hashlib
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posenc_jax.evaluation.sums import Sums
from posenc_jax.files import write_atomically
from posenc_jax.runs.checkpoints import digests
from posenc_jax.runs.parameters import by_path
from posenc_jax.terminal import warn

FORMAT = 4  # version of a cell's contents; a new number ignores all older cells


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
        """Load a finished cell; None if it is missing or damaged."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            return None
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                if str(stored["key"]) != name:
                    raise ValueError(f"it holds the cell {stored['key']}")
                return Sums(*(stored[field] for field in Sums._fields))
        except _UNREADABLE as error:
            warn(f"{path} is computed again: {error}")
            return None

    def put(self, name: str, sums: Sums) -> None:
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, key=np.array(name), **sums._asdict())
        write_atomically(self.folder / f"{name}.npz", stream.getvalue())


# Errors that a damaged archive may raise.
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,  # an entry marked as encrypted, or compressed by an unknown method
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
