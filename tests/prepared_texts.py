"""Texts, and the documents of a split."""

import numpy as np


def letters(seed, count=400):
    return "".join(np.random.default_rng(seed).choice(list("abcdefgh "), count))


def texts_of(split):
    pairs = zip(split.starts, split.starts[1:], strict=False)
    return [bytes(split.tokens[start:end]).decode() for start, end in pairs]
