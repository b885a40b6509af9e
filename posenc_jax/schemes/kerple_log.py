"""A learned bias that falls with the logarithm of the distance."""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, DistanceBias, trained


class KerpleLog(DistanceBias):
    """Chi et al. 2022, arXiv:2205.09921: -r1 ln(1 + r2 d), r1 from U(0, 2) and r2 from U(0, 1).

    Both are stored as logarithms, so they stay positive; draws from U(0, 1) start at 1e-3.
    """

    log_r1: jax.Array = trained()  # [H]
    log_r2: jax.Array = trained()  # [H]

    def curve(self, distance):
        r1, r2 = jnp.exp(self.log_r1)[:, None], jnp.exp(self.log_r2)[:, None]
        return -r1 * jnp.log1p(r2 * distance.astype(jnp.float32)[None, :])


def build(dims: Dims, key: jax.Array) -> KerpleLog:
    r1, r2 = jax.random.uniform(key, (2, dims.heads), minval=1e-3)
    return KerpleLog(dims=dims, log_r1=jnp.log(2 * r1), log_r2=jnp.log(r2))
