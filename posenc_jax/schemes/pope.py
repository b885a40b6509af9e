"""Polar coordinates: each entry of a query or key is a length, and its position alone an angle."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, fixed, trained
from posenc_jax.schemes import _rotation
from posenc_jax.schemes.rope import RoPE, base_per_head, by_head


class PoPE(RoPE):
    """Gopalakrishnan et al. 2025, arXiv:2509.10534: the logit is the sum of
    softplus(q_c) softplus(k_c) cos(theta_c (i - j) - b_c) over all K entries, over sqrt(K).

    b is trained and clamped to [-2 pi, 0]. It turns the queries, so heads may share keys. Each
    entry becomes two, and attention divides by sqrt(2 K): the factor sqrt(2) keeps the scale of K,
    as in x-transformers. Extensions see a RoPE of 2 K entries.
    """

    shift: jax.Array = trained(kw_only=True)  # [H, K], b, starts at 0

    def phase(self, positions):
        phase = super().phase(positions)
        b = by_head(jnp.clip(self.shift, -2 * math.pi, 0))
        cos, sin = math.sqrt(2) * jnp.cos(b), math.sqrt(2) * jnp.sin(b)
        return phase.replace(
            q_cos=phase.q_cos * cos + phase.q_sin * sin, q_sin=phase.q_sin * cos - phase.q_cos * sin
        )


def build(dims: Dims, *, base: float | Sequence[float] = 10_000.0) -> PoPE:
    """Build PoPE from one base, or from one base per head; layers share b."""
    if dims.rotary_dim is not None:
        raise ValueError(
            "encoding 'pope' turns whole heads and does not fit a latent; use rope or xpos"
        )
    bases = base_per_head(base, dims.heads)
    return PoPE(
        dims=dims,
        inv_freq=fixed(_rotation.frequencies(bases, 2 * dims.head_dim)),
        gain=fixed(1.0),
        base=fixed(bases),
        layout="polar",
        shift=jnp.zeros((dims.heads, dims.head_dim)),
    )
