"""Slow down some rotary pairs."""

import numpy as np

from posenc_jax.checks import positive
from posenc_jax.encoding import fixed
from posenc_jax.extensions import extension
from posenc_jax.extensions.rotary import ROTATION
from posenc_jax.schemes.rope import RoPE


@extension(ROTATION, scale="given", of=RoPE)
def slowed(rope: RoPE, scale: float, *, share: float = 0.5) -> RoPE:
    """Example 2026: divide the slowest `share` of the pairs by the scale."""
    pairs = rope.inv_freq.shape[-1]
    slow = np.arange(pairs) >= pairs * (1 - positive("share", share))
    return rope.replace(inv_freq=fixed(np.where(slow, rope.inv_freq / scale, rope.inv_freq)))
