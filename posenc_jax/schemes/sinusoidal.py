"""Sines and cosines of the position, added to the token embeddings."""

import jax.numpy as jnp

from posenc_jax.encoding import Dims, Encoding
from posenc_jax.schemes._rotation import cos_sin, frequencies, split


class Sinusoidal(Encoding):
    """Vaswani et al. 2017, arXiv:1706.03762: sin and cos of pos / 10000^(2i/D), interleaved.

    As in the paper the embeddings are multiplied by sqrt(D). The decoder initialises them with
    standard deviation D^-1/2, so content starts at size 1 and position at 0.7.
    """

    def embed(self, x, positions):
        width = x.shape[-1]
        freq, rest = split(frequencies(10_000.0, width))
        column = positions.reshape(-1, 1)
        cos, sin = cos_sin(column, freq[None, :], rest[None, :])  # [B * T, D/2]
        wave = jnp.stack([sin, cos], axis=-1).reshape(*positions.shape, -1)[..., :width]
        return x * width**0.5 + jnp.broadcast_to(wave, x.shape)


def build(dims: Dims) -> Sinusoidal:
    return Sinusoidal(dims=dims)
