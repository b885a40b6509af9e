"""A learned bias that falls with a power of the distance."""

import jax
import jax.numpy as jnp
from jax.scipy.special import logit

from posenc_jax.encoding import Dims, DistanceBias, trained


class KerplePower(DistanceBias):
    """Chi et al. 2022, arXiv:2205.09921: -r1 d^p, r1 from U(0, 1) and p from U(0, 2).

    r1 is stored as a logarithm and p / 2 as a logit, so both stay in range; draws from U(0, 1)
    keep 1e-3 from both ends.
    """

    log_r1: jax.Array = trained()  # [H]
    logit_p: jax.Array = trained()  # [H]

    def curve(self, distance):
        r1, p = jnp.exp(self.log_r1)[:, None], 2 * jax.nn.sigmoid(self.logit_p)[:, None]
        return -r1 * distance.astype(jnp.float32)[None, :] ** p


def build(dims: Dims, key: jax.Array) -> KerplePower:
    r1, p = jax.random.uniform(key, (2, dims.heads), minval=1e-3, maxval=1 - 1e-3)
    return KerplePower(dims=dims, log_r1=jnp.log(r1), logit_p=logit(p))
