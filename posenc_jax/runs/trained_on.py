"""The training documents of a run, which evaluations must exclude."""

import hashlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.config import Training
from posenc_jax.data import corpora, mixtures
from posenc_jax.errors import DataError
from posenc_jax.files import write_atomically
from posenc_jax.runs.checkpoints import Checkpoints

FILE = "trained_on.txt"  # one digest per line; the card has the hash of all


def keep(workdir: Path, digests: np.ndarray) -> None:
    write_atomically(workdir / FILE, "".join(f"{digest:016x}\n" for digest in digests.tolist()))


def hash_of(digests: np.ndarray) -> str:
    return hashlib.sha256(digests.astype("<u8").tobytes()).hexdigest()


def digests_of(config: Training, corpus: corpora.Corpus | mixtures.Mixture) -> np.ndarray:
    """Digests of a run's own documents and of those of the run whose weights it took."""
    own = corpus.digests
    if not config.init_from:
        return np.unique(own)
    source = Path(config.init_from)
    with closing(Checkpoints(source, read_only=True)) as checkpoints:
        card = checkpoints.card(checkpoints.steps()[-1])
    return np.union1d(own, read(source, card))


def read(workdir: Path, card: Mapping[str, Any]) -> np.ndarray:  # uint64, ascending
    """Digests of a run's training documents, which must match the card of its checkpoint."""
    path = workdir / FILE
    try:
        lines = path.read_text(encoding="utf-8").split()
        digests = np.array([int(line, 16) for line in lines], np.uint64)
        if hash_of(digests) == card["trained_on"]:
            return digests
    except (OSError, ValueError, OverflowError):
        pass
    raise DataError(
        f"{path}, the list of training documents, is missing or was changed; the command that "
        "trained the run writes it again"
    )
