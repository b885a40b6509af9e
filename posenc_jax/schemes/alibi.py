"""A penalty proportional to the distance, with one slope per head."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import whole_number
from posenc_jax.encoding import Dims, DistanceBias, fixed


class ALiBi(DistanceBias):
    """Press et al. 2021, arXiv:2108.12409."""

    slopes: jax.Array  # [H]

    def curve(self, distance):
        return -self.slopes[:, None] * distance.astype(jnp.float32)[None, :]

    def straight(self):
        return self.slopes


def slopes(heads: int) -> np.ndarray:  # [H]
    """2^(-8i/H) for a power of two; else the next lower power's, then every other of twice it."""
    heads = whole_number("heads", heads, at_least=1)
    lower = 1 << (heads.bit_length() - 1)
    first, between = _geometric(lower), _geometric(2 * lower)[0::2]
    return np.concatenate([first, between])[:heads]


def _geometric(heads: int) -> np.ndarray:
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)


def build(dims: Dims) -> ALiBi:
    return ALiBi(dims=dims, slopes=fixed(slopes(dims.heads)))
