"""Sines and cosines of angles that stay accurate at large positions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posenc_jax.encoding import check_far, two_sum


def frequencies(base, dims: int) -> np.ndarray:
    """Return base^(-2i/dims) for i < dims/2 in float64, with one row per base of an array."""
    return np.asarray(base, np.float64)[..., None] ** -(np.arange(0, dims, 2) / dims)


def cos_sin(
    positions: jax.Array,
    freq: ArrayLike,
    rest: ArrayLike = 0.0,
    position_rest: ArrayLike = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """Return cos and sin of positions * (freq + rest), where positions and freq broadcast.

    A plain float32 product of position 100,000 and frequency 1 is off by up to 0.004. Here both
    factors are split, so that products of more than 64 have at most 24 bits and are exact up to
    position 2^24. Their sum and the small rest are added as rotations. `rest` is the rounding error
    of a float64 frequency, and `position_rest` that of a position.
    """
    check_far("positions", positions)
    positions = jnp.asarray(positions, jnp.float32)
    freq = jnp.asarray(freq, jnp.float32)
    # Towards 0: sums of steps are fractions of either sign, which an offset would round.
    coarse = 4096.0 * jnp.trunc(positions / 4096.0)  # 12 bits
    middle = 64.0 * jnp.trunc((positions - coarse) / 64.0)  # 6 bits
    fine = (positions - coarse - middle) + position_rest  # 6 bits of whole positions
    bits = jax.lax.bitcast_convert_type(freq, jnp.uint32) & jnp.uint32(0xFFFFF000)
    head = jax.lax.bitcast_convert_type(bits, jnp.float32)  # 12 bits
    tail = freq - head  # 12 bits
    large, lost = two_sum(coarse * head, middle * head)
    large, lost_too = two_sum(large, coarse * tail)
    small = fine * head + (middle + fine) * tail + positions * rest + (lost + lost_too)
    return (
        jnp.cos(large) * jnp.cos(small) - jnp.sin(large) * jnp.sin(small),
        jnp.sin(large) * jnp.cos(small) + jnp.cos(large) * jnp.sin(small),
    )


def split(freq: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split a float64 frequency into its float32 value and the rounding error, for cos_sin."""
    rounded = freq.astype(np.float32)
    return rounded, (freq - rounded).astype(np.float32)
