"""The training documents of a run, which evaluations must exclude."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.config import Training, resolve
from posenc_jax.data import corpora, mixtures
from posenc_jax.errors import DataError, Stop
from posenc_jax.files import write_atomically
from posenc_jax.runs.checkpoints import Checkpoints

FILE = "trained_on.txt"  # one digest per line; the card has the hash of all


def keep(workdir: Path, digests: np.ndarray) -> None:
    write_atomically(workdir / FILE, "".join(f"{digest:016x}\n" for digest in digests.tolist()))


def hash_of(digests: np.ndarray) -> str:
    return hashlib.sha256(digests.astype("<u8").tobytes()).hexdigest()


def digests_of(config: Training, corpus: corpora.Corpus | mixtures.Mixture) -> np.ndarray:
    """Of a run in training: its own documents, and those of the run whose weights it took."""
    own = corpus.digests
    return np.union1d(own, trained_on(Path(config.init_from)) if config.init_from else own)


def trained_on(
    workdir: Path, card: Mapping[str, Any] | None = None, stopping: Sequence[str] = ()
) -> np.ndarray:  # uint64, ascending
    """Digests of a run's training documents, from its folder or else from its text.

    They must match the card of the checkpoint.
    """
    try:
        card = card or _last_card(workdir)
        kept = _read(workdir)
        if kept is not None and hash_of(kept) == card.get("trained_on"):
            return kept
        config = resolve.read(workdir)
        corpus = mixtures.prepare(config.data.source, config.seed, stopping=stopping)
        if not corpus.is_that_of(card):
            raise DataError("it has changed")
        return digests_of(config, corpus)
    except (Stop, OSError, ValueError, KeyError, IndexError) as error:
        raise DataError(
            f"cannot determine the training documents of {workdir}: {FILE} is missing or changed, "
            f"and the text cannot be read again ({error}); restore one of them"
        ) from error


def _read(workdir: Path) -> np.ndarray | None:
    """Read the list in the run's folder; None: unreadable."""
    with suppress(OSError, ValueError, OverflowError):
        lines = (workdir / FILE).read_text(encoding="utf-8").split()
        return np.array([int(line, 16) for line in lines], np.uint64)
    return None


def _last_card(workdir: Path) -> Mapping[str, Any]:
    with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        return checkpoints.card(checkpoints.steps()[-1])
