"""Mixtures of texts by shares of tokens, such as `stdlib:0.8,variables:0.2`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from posenc_jax.data import corpora
from posenc_jax.data.batches import Batches, MixedBatches
from posenc_jax.data.corpora import Corpus
from posenc_jax.data.sources import Documents, Origin, mixture
from posenc_jax.data.sources.tokens import Tokens


@dataclass(frozen=True)
class Mixture:
    """Corpora of a mixture by name, and their shares of the training tokens."""

    parts: Mapping[str, Corpus]
    shares: Mapping[str, float]

    @property
    def key(self) -> None:
        """None, as a mixture has no cache key of its own."""

    @property
    def first(self) -> Corpus:
        return next(iter(self.parts.values()))

    @cached_property
    def fingerprint(self) -> str:
        made = [[name, self.shares[name], part.fingerprint] for name, part in self.parts.items()]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()

    @property
    def vocab(self) -> int:
        return max(part.vocab for part in self.parts.values())

    @property
    def lossless(self) -> bool:
        return all(part.lossless for part in self.parts.values())

    @property
    def digests(self) -> np.ndarray:
        """Digests of training documents."""
        return np.concatenate([part.digests for part in self.parts.values()])

    @cached_property
    def card(self) -> dict[str, Any]:
        """Counts of documents and tokens, and bytes per token, over all parts."""
        splits = {}
        for split in corpora.SPLITS:
            own = [part.card["splits"][split] for part in self.parts.values()]
            total = {name: sum(one[name] for one in own) for name in ("documents", "tokens")}
            size = sum(one["bytes"] for one in own)
            splits[split] = total | {"bytes_per_token": size / total["tokens"] if size else None}
        return {"splits": splits}


def prepare(
    origin: Origin, seed: int, *, quiet: bool = False, stopping: Sequence[str] = ()
) -> Corpus | Mixture:
    """The tokens of an origin, a mixture or not."""
    how = {"quiet": quiet, "stopping": stopping}
    if not isinstance(origin, mixture.Mixture):
        assert isinstance(origin, Documents | Tokens)
        return corpora.prepare(origin, seed, **how)
    parts = {name: corpora.prepare(part, seed, **how) for name, part in origin.parts.items()}
    return Mixture(parts, origin.shares)


def batches(corpus: Corpus | Mixture, config) -> Batches | MixedBatches:
    """The rows of a training configuration."""
    every = {"batch_size": config.batch_size, "seed": config.seed}

    def of(part: Corpus) -> Batches:
        return Batches(
            part.train,
            length=config.train_length,
            within_documents=config.data.mask_documents,
            answers_only=config.data.answers_only,
            prefix=config.data.prefix,
            **every,
        )

    if isinstance(corpus, Corpus):
        return of(corpus)
    parts = [(of(part), corpus.shares[name]) for name, part in corpus.parts.items()]
    return MixedBatches(parts, **every)
