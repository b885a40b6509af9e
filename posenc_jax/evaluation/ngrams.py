"""Interpolated n-grams: what counting a text says of tokens after a few others."""

from collections.abc import Iterable, Iterator

import numpy as np

from posenc_jax.data.batches import Batch, Batches

STRENGTH = 5.0  # of the shorter context, in counts
TOKENS_AT_ONCE = 1 << 18
LARGE = 0x9E3779B97F4A7C15  # odd; multiplies the keys of vocabularies that do not fit 64 bits


def probabilities(
    asked: np.ndarray,  # [N, order], a target and the tokens before it; below 0: none
    counted: Iterable[np.ndarray],  # each [n, order], the same of the text that is counted
    vocab: int,
) -> np.ndarray:  # [order, N], of the targets, from 0, 1, ... tokens before them
    """p_k = (n + 5 p_{k-1}) / (N + 5), where p_0 = 1 / V.

    n is how often the last k tokens stand in the text, N how often all of them but the target do,
    before a target. Memory is that of what is asked, not of what is counted.
    """
    order = asked.shape[1]
    base = vocab + 2  # one stands for "none" in what is asked, another in what is counted
    base = base if base**order < 2**64 else LARGE
    own = _keys(np.where(asked < 0, vocab, asked), base)
    tables = [tuple(_Table(keys) for keys in pair) for pair in own]
    for grams in counted:
        for pair, keys in zip(
            tables, _keys(np.where(grams < 0, vocab + 1, grams), base), strict=True
        ):
            for table, its in zip(pair, keys, strict=True):
                table.add(its)
    made, shorter = [], np.full(len(asked), 1 / vocab)
    for targets, contexts in tables:
        shorter = (targets.counts() + STRENGTH * shorter) / (contexts.counts() + STRENGTH)
        made.append(shorter)
    return np.array(made)


def _keys(grams: np.ndarray, base: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For 1, 2, ... tokens a number of these, and one of them without the target."""
    words = grams.astype(np.uint64)
    factor, found = np.uint64(1), []
    whole = context = np.zeros(len(grams), np.uint64)
    for place in range(1, grams.shape[1] + 1):
        part = words[:, -place] * factor
        whole = whole + part
        context = context + (part if place > 1 else np.uint64(0))
        found.append((whole, context))
        factor = np.uint64(int(factor) * base % 2**64)
    return found


class _Table:
    """How often each of some keys was seen."""

    def __init__(self, keys: np.ndarray):
        self.keys, self.place = np.unique(keys, return_inverse=True)
        self.seen = np.zeros(len(self.keys), np.int64)

    def add(self, keys: np.ndarray) -> None:
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        hits = place[self.keys[place] == keys]
        self.seen += np.bincount(hits, minlength=len(self.keys))

    def counts(self) -> np.ndarray:
        return self.seen[self.place]


def grams(batch: Batch, order: int) -> np.ndarray:  # [n, order]
    """Every target of some rows with the tokens before it in its row; -1 before the row."""
    rows = np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1)
    before = np.full((len(rows), max(0, order - 2)), -1, rows.dtype)
    padded = np.concatenate([before, rows], axis=1)
    all_grams = np.lib.stride_tricks.sliding_window_view(padded, order, axis=1)
    return all_grams[:, -batch.targets.shape[1] :][batch.weights > 0]


def trained_on(batches: Batches, rows: int, order: int) -> Iterator[np.ndarray]:
    """The targets of the first rows of training, an epoch at most."""
    size = max(1, TOKENS_AT_ONCE // batches.length)
    rows = min(rows, batches.rows)
    for first in range(0, rows, size):
        yield grams(batches.at(range(first, min(first + size, rows))), order)


def before(tokens: np.ndarray, places: np.ndarray, first: np.ndarray, order: int) -> np.ndarray:
    """Tokens [N, order] at and before places [N]; -1 before each place's first token [N]."""
    index = places[:, None] + np.arange(1 - order, 1)
    inside = index >= first[:, None]
    return np.where(inside, tokens[np.where(inside, index, 0)].astype(np.int64), -1)
