"""Distances at which a query of a row sees each key, [T, T]; -1 where it sees none.

Extensions of RoPE that remap positions. Distances above the diagonal are not compared.
"""

import math

import numpy as np

from conformance.reference.rotation import _causal


def _table(length, distance):
    return _causal(
        np.array([[distance(i, j) for j in range(length)] for i in range(length)], np.float64)
    )


def rerope(length, w):
    """ReRoPE, Su 2023, https://github.com/bojone/rerope: min(d, w) [T, T]. Its queries are scaled
    too: see `logn`."""
    return _table(length, lambda i, j: min(i - j, w))


def leaky_rerope(length, w, k):
    """Leaky ReRoPE, Su 2023, https://github.com/bojone/rerope: d below w, else w + (d - w) / k
    [T, T]."""
    return _table(length, lambda i, j: i - j if i - j < w else w + (i - j - w) / k)


def self_extend(length, window, group, floor=True):
    """Self-Extend, Jin et al. 2024, arXiv:2401.01325: d below the window, else
    i // group - j // group + window - window // group [T, T].

    floor=False divides window / group without rounding, as the authors' code does.
    """
    shift = window - (window // group if floor else window / group)
    return _table(length, lambda i, j: i - j if i - j < window else i // group - j // group + shift)


def dca(length, train_length):
    """Dual chunk attention, An et al. 2024, arXiv:2402.17463: distances [T, T] as in its code, and
    the factor (0.05 ln(T / L) + 1)^2 on logits beyond L.

    With c = 3L/4, chunks of s = c - L/8 tokens: a key is at j mod s; the query is at i mod s for
    keys of its chunk, at min(i mod s + s, c) for those of the chunk before, else at min(2s - 1, c).
    """
    farthest = train_length * 3 // 4
    size = farthest - train_length // 8

    def distance(i, j):
        apart = i // size - j // size
        query = [i % size, min(i % size + size, farthest), min(2 * size - 1, farthest)]
        return query[min(max(apart, 0), 2)] - j % size

    factor = (0.05 * math.log(max(1, length / train_length)) + 1) ** 2
    return {"distance": _table(length, distance), "logit_factor": factor}


def lm_infinite(length, train_length, first=10, limit=None):
    """LM-Infinite, Han et al. 2023, arXiv:2308.16137: the last L keys, and the first ones at
    min(d, limit) (None: L) [T, T]."""
    limit = train_length if limit is None else limit

    def distance(i, j):
        if i - j < train_length:
            return i - j
        return min(i - j, limit) if j < first else -1

    return _table(length, distance)


def streaming(length, first, window):
    """StreamingLLM, Xiao et al. 2023, arXiv:2309.17453: the first and the last `window` keys, at
    their distances in a cache that holds no others [T, T]."""

    def distance(i, j):
        if i - j < window:
            return i - j
        return min(i - j, first + window - 1 - j) if j < first else -1

    return _table(length, distance)


def window(length, size):
    """A sliding window: 1 where a query sees a key, else 0 [T, T]; it sees `size` tokens, itself
    included."""
    return _table(length, lambda i, j: i - j < size)
