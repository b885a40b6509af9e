"""The inner product of two sinusoidal encodings as a bias."""

import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import whole_number
from posenc_jax.encoding import Dims, DistanceBias, static
from posenc_jax.schemes._rotation import cos_sin, split


class Sandwich(DistanceBias):
    """Chi et al. 2023, arXiv:2212.10356."""

    dbar: int = static(default=128)

    def curve(self, distance):
        # cos x - 1 = -2 sin^2(x/2), without the cancellation near distance 0.
        half_angle = 0.5 * 10_000.0 ** (-2 * np.arange(1, self.dbar // 2 + 1) / self.dbar)
        freq, rest = split(half_angle)
        _, sin = cos_sin(distance[:, None], freq[None, :], rest[None, :])
        drop = -2 * jnp.sum(sin**2, axis=-1)  # [N]
        strength = 8 * np.arange(1, self.dims.heads + 1, dtype=np.float32) / self.dims.heads
        return drop[None, :] / strength[:, None]


def build(dims: Dims, *, dbar: int = 128) -> Sandwich:
    whole_number("dbar", dbar, at_least=2, at_most=2**16)
    if dbar % 2:
        raise ValueError(f"dbar must be even; got {dbar}")
    return Sandwich(dims=dims, dbar=dbar)
