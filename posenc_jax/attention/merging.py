"""Merge attention over disjoint sets of keys, and add a sink, by log-sum-exp."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

NONE = -1e30  # log-sum over no keys: below every score, and finite


def merge(
    parts: Sequence[tuple[jax.Array, jax.Array]],
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K] and [B, H, Q]
    """Merge (out, log-sum) over disjoint sets of keys into attention over all of them.

    A set in which a query sees no key has weight 0 and gets no gradient.
    """
    outs, logsums = zip(*parts, strict=True)
    logsum = jax.nn.logsumexp(jnp.stack(logsums), axis=0)
    weights = jnp.exp(jnp.stack(logsums) - logsum[None])
    out = jnp.sum(weights[..., None] * jnp.stack(outs), axis=0)
    return out.astype(outs[0].dtype), logsum


def with_sink(out: jax.Array, logsum: jax.Array, sink: jax.Array | None) -> jax.Array:
    """Add a logit [H] without a value to the softmax of attention."""
    if sink is None:
        return out
    share = jax.nn.sigmoid(logsum - sink.astype(jnp.float32)[None, :, None])
    return (out * share[..., None]).astype(out.dtype)
