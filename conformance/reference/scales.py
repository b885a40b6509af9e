"""Factors on q . k by the position of the query, which starts at 0."""

import math

import numpy as np


def logn(positions, train_length):
    """Su 2021, https://kexue.fm/archives/8823: max(1, ln(p + 1) / ln L) [T]."""
    return np.maximum(1, np.log(np.asarray(positions) + 1) / math.log(train_length))


def ssmax(positions, s, b=None):
    """Scalable softmax, Nakanishi 2025, arXiv:2501.19399: s ln n + b [H, T], s and b [H].

    n = p + 1 is the number of keys that the query sees.
    """
    factor = np.multiply.outer(np.float64(s), np.log(np.asarray(positions) + 1))
    return factor if b is None else factor + np.float64(b)[:, None]


def query_scale(positions, kind, train_length, a=0.1):
    """Fixed factors [T] of shipped models.

    llama4 (Meta 2025) is 1 + a ln(1 + floor((p + 1) / L)), ministral3 (Mistral AI 2025) has
    floor(p / L) in its place, and inkling (Thinking Machines 2026) is
    1 + a ln(max(1, (p + 1) / L)).
    """
    p = np.asarray(positions)
    if kind == "llama4":
        return 1 + a * np.log(1 + np.floor((p + 1) / train_length))
    if kind == "ministral3":
        return 1 + a * np.log(1 + np.floor(p / train_length))
    return 1 + a * np.log(np.maximum(1, (p + 1) / train_length))
