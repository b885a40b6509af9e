"""Rotation with a decay: RoPE whose scores shrink with the distance."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from posenc_jax.checks import choice, rotary_dims
from posenc_jax.encoding import Dims, Encoding, Phase, check_reach, fixed, static
from posenc_jax.schemes._rotation import cos_sin, frequencies
from posenc_jax.schemes.rope import base_per_head, by_head, positions_by_head

_UNIT = 512.0  # positions over which a pair decays by zeta
_HEADROOM = 128.0  # largest entry of a query or key that cannot overflow


class XPos(Encoding):
    """Sun et al. 2022, arXiv:2212.10554: q times zeta^((p-c)/512), k times zeta^-((p-c)/512).

    c is the middle of the span for queries and keys alike: it cancels in every product and keeps
    both factors within float32 for the longest possible span.
    """

    inv_freq: jax.Array  # [R/2], or [H, R/2]
    layout: str = static(default="half")

    @property
    def reach(self):
        """The longest span within float32: the fastest pair decays by 0.4/1.4 every 512."""
        largest = float(np.finfo(np.float32).max) / _HEADROOM
        return int(2 * _UNIT * math.log(largest) / -math.log(0.4 / 1.4))

    def phase(self, positions):
        positions = positions_by_head(positions).astype(jnp.float32)
        cos, sin = cos_sin(positions, by_head(self.inv_freq))
        first, last = jnp.min(positions), jnp.max(positions)
        if not isinstance(last, Tracer):
            check_reach(self, int(last - first) + 1)
        # Under jit the check cannot run: a span that is too long gives NaN, not a wrong number.
        centre = jnp.where(last - first < self.reach, (first + last) / 2, jnp.nan)
        pairs = self.inv_freq.shape[-1]
        zeta = (np.arange(pairs) * 2 + 0.8 * pairs) / (2.8 * pairs)  # R = 2 * pairs
        decay = jnp.exp((positions - centre) / _UNIT * by_head(fixed(np.log(zeta))))
        return Phase(
            q_cos=cos * decay,
            q_sin=sin * decay,
            k_cos=cos / decay,
            k_sin=sin / decay,
            layout=self.layout,
        )


def build(
    dims: Dims, *, base: float = 10_000.0, fraction: float = 1.0, layout: str = "half"
) -> XPos:
    rotary = rotary_dims(dims.head_dim, fraction, dims.rotary_dim)
    return XPos(
        dims=dims,
        inv_freq=fixed(frequencies(base_per_head(base, dims.heads), rotary)),
        layout=choice("layout", layout, ("half", "interleaved")),
    )
