"""A pretrained model as its publisher wrote it."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.data import tokenizer


class Source(NamedTuple):
    """A model whose arrays are read when they are called for."""

    config: dict[str, Any]  # as in config.json
    arrays: Mapping[str, Callable[[], np.ndarray]]
    tokenizer: tokenizer.Learned
    prefix: int | None  # a token that is put before a text, which the model was trained with
    digest: str  # sha256 of the files


def digest_of(files: list[Path]) -> str:
    """sha256 of the contents of files, one after another."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
