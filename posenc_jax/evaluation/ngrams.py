"""Interpolated n-gram models: probabilities of targets from counts over a text."""

from collections.abc import Iterable, Iterator

import numpy as np

from posenc_jax.data.batches import Batch, Batches

STRENGTH = 5.0  # weight of the shorter context, in counts
TOKENS_AT_ONCE = 1 << 18
LARGE = 0x9E3779B97F4A7C15  # odd; base of hashes for vocabularies whose n-grams exceed 64 bits


def probabilities(
    queries: np.ndarray,  # [N, order], a target and the tokens before it; below 0: no token
    counted: Iterable[np.ndarray],  # each [n, order], n-grams of the text to count
    vocab: int,
) -> np.ndarray:  # [order, N], of the targets, given 0, 1, ... tokens before them
    """p_k = (n + 5 p_{k-1}) / (N + 5), where p_0 = 1 / V.

    n counts the last k tokens in the text, N the same tokens without the target. Memory grows with
    the queries, not with the text.
    """
    order = queries.shape[1]
    base = vocab + 2  # two values for "no token", which differ so that they never match
    base = base if base**order < 2**64 else LARGE
    query_keys = _keys(np.where(queries < 0, vocab, queries), base)
    tables = [tuple(_Table(keys) for keys in pair) for pair in query_keys]
    for grams in counted:
        for pair, keys in zip(
            tables, _keys(np.where(grams < 0, vocab + 1, grams), base), strict=True
        ):
            for table, text_keys in zip(pair, keys, strict=True):
                table.add(text_keys)
    by_order, shorter = [], np.full(len(queries), 1 / vocab)
    for targets, contexts in tables:
        shorter = (targets.counts() + STRENGTH * shorter) / (contexts.counts() + STRENGTH)
        by_order.append(shorter)
    return np.array(by_order)


def _keys(grams: np.ndarray, base: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Hash the last 1, 2, ... tokens of n-grams, with and without the target."""
    words = grams.astype(np.uint64)
    factor, keys = np.uint64(1), []
    whole = context = np.zeros(len(grams), np.uint64)
    for place in range(1, grams.shape[1] + 1):
        term = words[:, -place] * factor
        whole = whole + term
        context = context + (term if place > 1 else np.uint64(0))
        keys.append((whole, context))
        factor = np.uint64(int(factor) * base % 2**64)
    return keys


class _Table:
    """Counts of a fixed set of keys."""

    def __init__(self, keys: np.ndarray):
        self.keys, self.index = np.unique(keys, return_inverse=True)
        self.seen = np.zeros(len(self.keys), np.int64)

    def add(self, keys: np.ndarray) -> None:
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        hits = index[self.keys[index] == keys]
        self.seen += np.bincount(hits, minlength=len(self.keys))

    def counts(self) -> np.ndarray:
        return self.seen[self.index]


def grams(batch: Batch, order: int) -> np.ndarray:  # [n, order]
    """Every target of a batch with the tokens before it in its row; -1 before the row."""
    rows = np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1)
    before = np.full((len(rows), max(0, order - 2)), -1, rows.dtype)
    padded = np.concatenate([before, rows], axis=1)
    all_grams = np.lib.stride_tricks.sliding_window_view(padded, order, axis=1)
    return all_grams[:, -batch.targets.shape[1] :][batch.weights > 0]


def trained_on(batches: Batches, rows: int, order: int) -> Iterator[np.ndarray]:
    """Yield the n-grams of the first rows of training, at most one epoch."""
    size = max(1, TOKENS_AT_ONCE // batches.length)
    rows = min(rows, batches.rows)
    for first in range(0, rows, size):
        yield grams(batches.at(range(first, min(first + size, rows))), order)


def before(tokens: np.ndarray, places: np.ndarray, first: np.ndarray, order: int) -> np.ndarray:
    """Tokens [N, order] at and before places [N]; -1 before each place's first token [N]."""
    index = places[:, None] + np.arange(1 - order, 1)
    inside = index >= first[:, None]
    return np.where(inside, tokens[np.where(inside, index, 0)].astype(np.int64), -1)
