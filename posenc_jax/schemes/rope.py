"""Rotation of queries and keys by angles that grow with their positions."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import choice, positive, rotary_dims
from posenc_jax.encoding import Dims, Encoding, Phase, check_far, fixed, static
from posenc_jax.schemes._rotation import cos_sin, frequencies


class RoPE(Encoding):
    """Su et al. 2021, arXiv:2104.09864."""

    inv_freq: jax.Array  # [R/2], or [H, R/2]
    gain: jax.Array  # [], or [H, R/2]; multiplies cos and sin, so the logits by its square
    base: jax.Array  # [], or [H]; what inv_freq was computed from, for extensions
    layout: str = static(default="half")

    def phase(self, positions):
        cos, sin = cos_sin(positions_by_head(positions), by_head(self.inv_freq))
        if self.gain.ndim == 1:
            raise ValueError(f"gain is one number or [H, R/2]; got {self.gain.shape}")
        cos, sin = by_head(self.gain) * cos, by_head(self.gain) * sin
        return Phase(q_cos=cos, q_sin=sin, k_cos=cos, k_sin=sin, layout=self.layout)


def by_head(field: jax.Array) -> jax.Array:  # [], [R/2], [H, R/2] -> [1, H or 1, 1, R/2 or 1]
    return jnp.atleast_2d(field)[None, :, None, :]


def positions_by_head(positions: jax.Array) -> jax.Array:  # [T], [B, T] -> [B or 1, 1, T, 1]
    check_far("positions", positions)
    return jnp.atleast_2d(positions)[:, None, :, None]


def build(
    dims: Dims,
    *,
    base: float | Sequence[float] = 10_000.0,
    fraction: float = 1.0,
    layout: str = "half",
) -> RoPE:
    """Build from one base, or from a sequence with one base per head."""
    rotary = rotary_dims(dims.head_dim, fraction)
    bases = base_per_head(base, dims.heads)
    return RoPE(
        dims=dims,
        inv_freq=fixed(frequencies(bases, rotary)),
        gain=fixed(1.0),
        base=fixed(bases),
        layout=choice("layout", layout, ("half", "interleaved")),
    )


def base_per_head(base: float | Sequence[float] | np.ndarray, heads: int) -> np.ndarray:
    """Bases [] or [H] rounded to float32, from which extensions compute frequencies again."""
    given = np.asarray(base, object)
    bases = np.array([_base(b) for b in given.reshape(-1)])
    if given.ndim == 0:
        return bases[0]
    if bases.shape != (heads,):
        raise ValueError(
            f"base has {len(bases)} entries; give one number, or one per head: {heads}"
        )
    return bases


def _base(value) -> float:
    value = positive("base", value, above=1.0)
    if value > float(np.finfo(np.float32).max):
        raise ValueError(f"base must be a float32 number; got {value:g}")
    return float(np.float32(value))
