"""The loss of every target, by one compiled program per shape and structure."""

from collections.abc import Callable

import jax
import numpy as np

import models
from posenc_jax.encoding import Encoding


def make(model: models.Transformer, tokens_per_call: int) -> Callable[..., np.ndarray]:
    """(encoding, tokens [N, T + 1]) -> nats of each target, [N, T]."""

    @jax.jit
    def read(model, encoding, tokens):
        return models.nll(model(tokens[:, :-1], encoding), tokens[:, 1:])

    def losses(encoding: Encoding, tokens: np.ndarray) -> np.ndarray:
        length = tokens.shape[1] - 1
        rows = max(1, tokens_per_call // length)
        parts = []
        for first in range(0, len(tokens), rows):
            index = np.arange(first, first + rows) % len(tokens)  # the last call is filled up
            part = np.asarray(read(model, encoding, tokens[index]), np.float64)
            parts.append(part[: len(tokens) - first])
        return np.concatenate(parts)

    return losses
