"""Queries, keys and values for schemes with their own attention."""

import jax.numpy as jnp
import numpy as np
from sizes import DIMS

from posenc_jax.attention import attention
from posenc_jax.encoding import Tokens

B, H, K = 2, DIMS.heads, DIMS.head_dim


def qkv(queries, keys=None, groups=H):
    rng = np.random.default_rng(0)
    shapes = [(B, queries, H, K)] + 2 * [(B, keys or queries, groups, K)]
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def attend_to_ring(q, k, v, encoding):
    """Attend from one query to nine keys in a ring; return the output and the order of the keys."""
    order = jnp.array([18, 19, 20, 12, 13, 14, 15, 16, 17])
    sides = Tokens(jnp.array([20]), order=jnp.array([20])), Tokens(order, order=order)
    heads_major = [jnp.swapaxes(x, 1, 2) for x in (q, k, v)]
    return jnp.swapaxes(attention(*heads_major, encoding.windowed(9), *sides), 1, 2), order
