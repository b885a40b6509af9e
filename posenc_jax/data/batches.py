"""Batches as a pure function of seed and step, so that resuming needs only the step."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from posenc_jax.data.corpora import Corpus, Mixture, Split
from posenc_jax.data.sources.mixture import SHARES
from posenc_jax.runtime.errors import DataError
from posenc_jax.runtime.terminal import counted


class Batch(NamedTuple):
    inputs: np.ndarray  # [B, T], int32
    targets: np.ndarray  # [B, T]
    weights: np.ndarray  # [B, T], float32: 0 where target and input are from different documents
    segments: np.ndarray  # [B, T], number of the document in its row
    bytes: np.ndarray  # [B, T], bytes of text of each target


def with_prefix(tokens: np.ndarray, prefix: int | None) -> np.ndarray:  # [B, T]
    """The inputs of rows with `data.prefix` in place of their first token."""
    if prefix is None:
        return tokens
    return np.concatenate([np.full_like(tokens[:, :1], prefix), tokens[:, 1:]], axis=1)


class Batches:
    """Rows of L tokens cut from the concatenated documents, in a new order every epoch.

    A random offset below L shifts the cuts of each epoch, so that the position of a token varies.
    Documents that each fill a row are used as rows. With `beside` so many rows stand in one, each a
    segment of its own.
    """

    def __init__(
        self,
        split: Split,
        *,
        length: int,
        batch_size: int,
        seed: int,
        within_documents: bool,
        answers_only: bool = False,
        prefix: int | None = None,
        beside: int = 1,
    ):
        self.prefix, self.beside = prefix, beside
        self.split, self.length, self.batch_size, self.seed = split, length, batch_size, seed
        self.within_documents = within_documents
        self.answers = split.answers if answers_only else None
        self.documents_are_rows = bool(np.all(np.diff(split.starts) == length + 1))
        self.stride = length + 1 if self.documents_are_rows else length
        # The number of rows that fits for any offset.
        self.rows = (
            len(split.starts) - 1
            if self.documents_are_rows
            else (len(split.tokens) - 1 - (length - 1)) // length
        )
        if self.rows < 1:
            raise DataError(
                f"{counted(len(split.tokens), 'token')}: too few for one row of {length} "
                f"(train_length), which takes {2 * length}; use more text or a shorter train_length"
            )
        self._order = lru_cache(maxsize=2)(self._draw_order)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Batch of a step, or the rows of it for one process."""
        return self.at(np.arange(step * self.batch_size, (step + 1) * self.batch_size)[rows])

    def at(self, places) -> Batch:
        """Batch of the rows at these places in the order of training."""
        every = np.asarray(places, np.int64)[:, None] * self.beside + np.arange(self.beside)
        return self._together(
            self.rows_at([self._start(int(place)) for place in every.reshape(-1)])
        )

    def rows_at(self, starts) -> Batch:
        index = np.asarray(starts, np.int64)[:, None] + np.arange(self.length + 1)
        tokens = self.split.tokens[index].astype(np.int32)
        inputs = with_prefix(tokens[:, :-1], self.prefix)
        document = np.searchsorted(self.split.starts, index, side="right") - 1
        same = document[:, 1:] == document[:, :-1]
        weights = same if self.within_documents else np.ones_like(same)
        if self.answers is not None:
            weights = weights & self.answers[index[:, 1:]]
        segments = document[:, :-1] - document[:, :1]
        widths = self.split.bytes_of
        return Batch(
            inputs=inputs,
            targets=tokens[:, 1:],
            weights=weights.astype(np.float32),
            segments=segments.astype(np.int32),
            bytes=np.ones_like(tokens[:, 1:]) if widths is None else widths[index[:, 1:]],
        )

    def _together(self, batch: Batch) -> Batch:
        """`beside` rows of a batch in each one."""
        if self.beside == 1:
            return batch
        first = np.arange(len(batch.segments)) % self.beside * self.length  # above those before
        batch = batch._replace(segments=batch.segments + first[:, None].astype(np.int32))
        return Batch(*(column.reshape(-1, self.beside * self.length) for column in batch))

    def held_out(self, rows: int) -> Batch:
        """Rows spread evenly over the split, the same in every run.

        Answers whose gap exceeds the row are excluded, as tests have longer gaps than a row can
        hold.
        """
        count = min(rows * self.beside, self.rows // self.beside * self.beside)
        chosen = np.unique(np.linspace(0, self.rows - 1, num=count).astype(int))
        starts = chosen * self.stride
        held = self._together(self.rows_at(starts))
        if self.answers is None or self.split.gaps is None:
            return held
        place = np.arange(self.length)
        within = self.split.gaps[starts[:, None] + place + 1] <= place
        return held._replace(weights=held.weights * within)

    def _start(self, place: int) -> int:
        epoch, row = divmod(place, self.rows)
        offset, order = self._order(epoch)
        return offset + int(order[row]) * self.stride

    def _draw_order(self, epoch: int) -> tuple[int, np.ndarray]:
        rng = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, epoch]))
        offset = int(rng.integers(self.length))
        return 0 if self.documents_are_rows else offset, rng.permutation(self.rows)


class MixedBatches:
    """Rows of several splits in given shares, exact in each block of SHARES shuffled rows."""

    def __init__(self, parts: Sequence[tuple[Batches, float]], *, batch_size: int, seed: int):
        self.parts = [part for part, _ in parts]
        self.batch_size, self.seed = batch_size, seed
        self.counts = _rounded([share for _, share in parts], SHARES)
        self._order = lru_cache(maxsize=2)(self._draw_order)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)[rows]
        chosen = np.array([self._find(int(place)) for place in places])  # [B, 2]: part, place
        pieces = [part.at(chosen[chosen[:, 0] == i, 1]) for i, part in enumerate(self.parts)]
        order = np.argsort(np.argsort(chosen[:, 0], kind="stable"), kind="stable")
        return Batch(*(np.concatenate(columns)[order] for columns in zip(*pieces, strict=True)))

    def _find(self, place: int) -> tuple[int, int]:
        """Part of a row, and the number of rows of that part before it."""
        block, inner = divmod(place, SHARES)
        part, before = self._order(block)
        return int(part[inner]), int(block * self.counts[part[inner]] + before[inner])

    def _draw_order(self, block: int) -> tuple[np.ndarray, np.ndarray]:  # [SHARES] twice
        rng = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 1, block]))
        part = rng.permutation(np.repeat(np.arange(len(self.parts)), self.counts))
        before = np.zeros(SHARES, np.int64)
        for i in range(len(self.parts)):
            before[part == i] = np.arange(self.counts[i])
        return part, before


def _rounded(shares: Sequence[float], total: int) -> np.ndarray:
    """Integers that sum to `total`, by largest remainders."""
    exact = np.array(shares) / sum(shares) * total
    whole = np.floor(exact).astype(int)
    largest = np.argsort(whole - exact, kind="stable")
    whole[largest[: total - whole.sum()]] += 1
    return whole


def rows_of(split: Split, config, length: int | None = None) -> Batches:
    """The rows of a split as a training configuration cuts them, or of this length in those."""
    own = length or config.train_length
    return Batches(
        split,
        length=own,
        beside=config.train_length // own,
        batch_size=config.batch_size,
        seed=config.seed,
        within_documents=config.data.mask_documents,
        answers_only=config.data.answers_only,
        prefix=config.data.prefix,
    )


def batches_of(corpus: Corpus | Mixture, config) -> Batches | MixedBatches:
    """The rows of a training configuration."""
    if isinstance(corpus, Corpus):
        return rows_of(corpus.train, config)
    parts = [
        (rows_of(part.train, config, corpus.lengths.get(name)), corpus.shares[name])
        for name, part in corpus.parts.items()
    ]
    return MixedBatches(parts, batch_size=config.batch_size, seed=config.seed)
