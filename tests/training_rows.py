"""A batch of rows for training steps in this process."""

import numpy as np

from posenc_jax.data.batches import Batch


def rows(batch=4, length=8, seed=0):
    tokens = np.random.default_rng(seed).integers(0, 31, (batch, length + 1)).astype(np.int32)
    ones = np.ones((batch, length), np.float32)
    segments = np.zeros((batch, length), np.int32)
    return Batch(tokens[:, :-1], tokens[:, 1:], ones, segments, ones.astype(int))
