"""Finished cells on disk, keyed by their inputs: one model, encoding and set of tokens is one cell,
whichever extension, protocol or evaluation needs it."""

import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posenc_jax.errors import Stop
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
            stored = load_arrays(path)
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


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Load what `save_arrays` wrote."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = dict(stored)
        digest = arrays.pop("digest", None)
        if str(digest) != _digest(arrays):
            raise ValueError("its arrays do not match their checksum")
        return arrays
    except _UNREADABLE as error:
        raise Stop(f"cannot read {path}: {error}; run eval_extrapolation.py again") from error


def save_arrays(path: Path, **arrays: np.ndarray) -> None:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, digest=np.array(_digest(arrays)), **arrays)
    write_atomically(path, stream.getvalue())


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """sha256 of the name, type, shape and bytes of every array."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
