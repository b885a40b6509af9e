"""Biases on logits by position: what is added to q . k / sqrt(K)."""

import numpy as np

from conformance.reference.rotation import _causal


def _back(length):  # [T, T]
    return np.maximum(np.subtract.outer(np.arange(length), np.arange(length)), 0).astype(np.float64)


def alibi_slopes(heads):
    """Press et al. 2021, arXiv:2108.12409: slopes [H], 2^(-8i/H) where H is a power of two.

    Otherwise they are those of the next lower power P, then every other one of 2P.
    """
    power = 1
    while 2 * power <= heads:
        power *= 2
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    between = [2 ** (-8 * i / (2 * power)) for i in range(1, 2 * power + 1, 2)]
    return np.array((slopes + between)[:heads])


def alibi(heads, length):
    """Press et al. 2021, arXiv:2108.12409: -slope d [H, T, T]."""
    return _causal(-alibi_slopes(heads)[:, None, None] * _back(length))


def t5_bucket(distance, num_buckets=32, max_distance=128):
    """Raffel et al. 2019, arXiv:1910.10683, causal: the bucket [N] of distances query - key [N].

    With h = num_buckets / 2 it is d below h, then h + floor(ln(d/h) / ln(max_distance/h) h), at
    most num_buckets - 1. Whole numbers decide: floor(x h) >= j where d^h h^j >= max_distance^j h^h.
    """
    half = num_buckets // 2

    def bucket(d):
        if d < half:
            return d
        passed = [d**half * half**j >= max_distance**j * half**half for j in range(1, half)]
        return half + sum(passed)

    return np.array([bucket(int(d)) for d in distance])


def kerple_log(distance, r1, r2):
    """Chi et al. 2022, arXiv:2205.09921: -r1 ln(1 + r2 d) [H, N] at distances [N], for r1 and r2
    [H]."""
    r1, r2 = np.float64(r1)[:, None], np.float64(r2)[:, None]
    return -r1 * np.log1p(r2 * np.asarray(distance))


def kerple_power(distance, r1, p):
    """Chi et al. 2022, arXiv:2205.09921: -r1 d^p [H, N] at distances [N], for r1 and p [H]."""
    return -np.float64(r1)[:, None] * np.asarray(distance, np.float64) ** np.float64(p)[:, None]


def sandwich(distance, heads, dbar=128):
    """Chi et al. 2022, arXiv:2212.10356: biases [H, N] at distances [N].

    (sum over j = 1 .. dbar/2 of cos(d / 10000^(2j/dbar)), less dbar/2) / (8h/H), h = 1 .. H.
    """
    angle = np.divide.outer(distance, 10_000.0 ** (2 * np.arange(1, dbar // 2 + 1) / dbar))
    total = np.sum(np.cos(angle), axis=1) - dbar / 2
    return total / (8 * np.arange(1, heads + 1) / heads)[:, None]


def fire(length, c, threshold, w1, b1, w2):
    """FIRE, Li et al. 2023, arXiv:2310.04418: biases [H, T, T].

    w2 relu(w1 x + b1) for x = ln(1 + c d) / ln(1 + c max(threshold, i)), i the query's position;
    w1 and b1 are [F], w2 [F, H]. `threshold` is in tokens.
    """
    w1, b1, w2 = (np.asarray(x, np.float64) for x in (w1, b1, w2))
    farthest = np.maximum(threshold, np.arange(length))[:, None]
    share = np.log(1 + c * _back(length)) / np.log(1 + c * farthest)
    return _causal(np.moveaxis(np.maximum(share[..., None] * w1 + b1, 0) @ w2, -1, 0))
