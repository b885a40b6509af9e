"""Rotation of queries and keys by angles that grow with their position."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Dims, Encoding, Phase, fixed, static
from posenc_jax.options import choice, positive, rotary_dims
from posenc_jax.schemes._rotation import cos_sin, frequencies


class RoPE(Encoding):
    """Su et al. 2021, arXiv:2104.09864."""

    inv_freq: jax.Array  # [R/2], or [H, R/2]
    gain: jax.Array  # [], or [H, R/2]; multiplies cos and sin, so the logits by its square
    base: jax.Array  # [], or [H]; what inv_freq was made of, which extensions ask for
    layout: str = static(default="half")

    def phase(self, positions):
        cos, sin = cos_sin(positions_by_head(positions), by_head(self.inv_freq))
        cos, sin = by_head(self.gain) * cos, by_head(self.gain) * sin
        return Phase(q_cos=cos, q_sin=sin, k_cos=cos, k_sin=sin, layout=self.layout)


def by_head(field: jax.Array) -> jax.Array:  # [], [R/2], [H, R/2] -> [1, H or 1, 1, R/2 or 1]
    return jnp.atleast_2d(field)[None, :, None, :]


def positions_by_head(positions: jax.Array) -> jax.Array:  # [T], [B, T] -> [B or 1, 1, T, 1]
    return jnp.atleast_2d(positions)[:, None, :, None]


def build(
    dims: Dims,
    *,
    base: float | Sequence[float] = 10_000.0,
    fraction: float = 1.0,
    layout: str = "half",
) -> RoPE:
    """`base` may be a sequence of one base per head."""
    rotary = rotary_dims(dims.head_dim, fraction)
    bases = base_per_head(base, dims.heads)
    return RoPE(
        train_length=dims.train_length,
        inv_freq=fixed(frequencies(bases, rotary)),
        gain=fixed(1.0),
        base=fixed(bases),
        layout=choice("layout", layout, ("half", "interleaved")),
    )


def base_per_head(base: float | Sequence[float], heads: int) -> np.ndarray:  # [] or [H]
    if not isinstance(base, Sequence) or isinstance(base, str):
        return np.array(positive("base", base, above=1.0))
    if len(base) != heads:
        raise ValueError(f"base has {len(base)} entries; give one number, or one per head: {heads}")
    return np.array([positive("base", b, above=1.0) for b in base])
