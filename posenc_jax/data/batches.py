"""Batches as a pure function of seed and step, so that resuming needs one number."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from posenc_jax.data.corpora import Split
from posenc_jax.errors import DataError


class Batch(NamedTuple):
    inputs: np.ndarray  # [B, T], int32
    targets: np.ndarray  # [B, T]
    weights: np.ndarray  # [B, T], float32: 0 where a target is of another document than its input
    segments: np.ndarray  # [B, T], the number of the document
    bytes: np.ndarray  # [B, T], bytes of text that each target stands for


class Batches:
    """Rows of L tokens cut from the concatenated documents, in a new order every epoch.

    Each epoch shifts its cuts by a random offset below L, so that a token's place varies.
    """

    def __init__(
        self, split: Split, *, length: int, batch_size: int, seed: int, within_documents: bool
    ):
        self.split, self.length, self.batch_size, self.seed = split, length, batch_size, seed
        self.within_documents = within_documents
        self.rows = (
            len(split.tokens) - 1 - (length - 1)
        ) // length  # whatever the offset of the cuts
        if self.rows < 1:
            raise DataError(
                f"{len(split.tokens)} tokens are too few for one row of {length} (train_length), "
                f"which takes {2 * length}; use more text or a shorter train_length"
            )
        self._order = lru_cache(maxsize=2)(self._draw_order)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """The rows of a step, or those of one process."""
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)[rows]
        return self.rows_at([self._start(int(place)) for place in places])

    def describe(self, step: int) -> str:
        """Say where the rows of a step are in the text, to help find a bad one."""
        places = range(step * self.batch_size, (step + 1) * self.batch_size)
        starts = np.array([self._start(place) for place in places])
        documents = np.unique(np.searchsorted(self.split.starts, starts, side="right") - 1)
        return (
            f"rows of {self.length} tokens from {', '.join(map(str, starts[:8]))}"
            f"{', ...' if len(starts) > 8 else ''} of the training tokens, in documents "
            f"{', '.join(map(str, documents[:8]))}{', ...' if len(documents) > 8 else ''}"
        )

    def rows_at(self, starts) -> Batch:
        index = np.asarray(starts, np.int64)[:, None] + np.arange(self.length + 1)
        tokens = self.split.tokens[index].astype(np.int32)
        document = np.searchsorted(self.split.starts, index, side="right") - 1
        same = document[:, 1:] == document[:, :-1]
        weights = same if self.within_documents else np.ones_like(same)
        segments = document[:, :-1] - document[:, :1]
        widths = self.split.bytes_of
        return Batch(
            inputs=tokens[:, :-1],
            targets=tokens[:, 1:],
            weights=weights.astype(np.float32),
            segments=segments.astype(np.int32),
            bytes=np.ones_like(tokens[:, 1:]) if widths is None else widths[index[:, 1:]],
        )

    def _start(self, place: int) -> int:
        epoch, row = divmod(place, self.rows)
        offset, order = self._order(epoch)
        return offset + int(order[row]) * self.length

    def _draw_order(self, epoch: int) -> tuple[int, np.ndarray]:
        rng = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, epoch]))
        return int(rng.integers(self.length)), rng.permutation(self.rows)


def held_out(split: Split, *, length: int, rows: int, within_documents: bool) -> Batch:
    """Rows spread evenly over a split, the same in every run."""
    cutter = Batches(split, length=length, batch_size=1, seed=0, within_documents=within_documents)
    chosen = np.unique(np.linspace(0, cutter.rows - 1, num=min(rows, cutter.rows)).astype(int))
    return cutter.rows_at(chosen * length)
