"""A penalty that grows with the square root of the distance."""

import jax
import jax.numpy as jnp

from posenc_jax.checks import positive
from posenc_jax.encoding import Dims, DistanceBias, trained


class RootBias(DistanceBias):
    """Written by a test, from no paper."""

    log_slope: jax.Array = trained()  # [H]

    def curve(self, distance):
        return -jnp.exp(self.log_slope)[:, None] * jnp.sqrt(distance.astype(jnp.float32))[None, :]


def build(dims: Dims, key: jax.Array, *, sharpness: float = 1.0) -> RootBias:
    draw = jax.random.normal(key, (dims.heads,))
    return RootBias(dims=dims, log_slope=positive("sharpness", sharpness) * draw)
