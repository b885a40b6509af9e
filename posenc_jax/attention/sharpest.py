"""Attention for some queries at a time, and to the keys of each query's highest logits."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.attention import target
from posenc_jax.attention.plain import logits_of, order_of, part, places_of, softmax, turn
from posenc_jax.attention.regions import phase_between, with_phases
from posenc_jax.encoding import Encoding, Phase, Tokens
from posenc_jax.layers import overrides, topk_of

SCORES = 2**20  # held at once on a CPU, in its cache: 4 MiB in float32
ON_DEVICE = 2**27  # the same on a GPU or a TPU: 512 MiB
PIECES = 4  # of the queries; each compiles a program of its own


def sharpest(
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K], or another size than keys have
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None,
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K] of the values, and [B, H, Q]
    """Compute attention to the keys of the highest logits of all regions together."""
    in_regions = overrides(encoding, "regions")
    if not in_regions:
        q, k, v = turn(q, k, v, encoding, phase)

    def compute(q, k, v, q_tokens, k_tokens):
        phase = None
        if in_regions:
            phase = phase_between(encoding, q_tokens.position, k_tokens.position)
        scores, seen, values = jnp.zeros(()), jnp.zeros((), bool), v
        for region, each in with_phases(encoding, q_tokens, k_tokens, phase):
            given = (q, k, v, encoding, q_tokens, k_tokens)
            logits, holds, values = logits_of(*given, phase=each, region=region)
            scores, seen = jnp.where(holds, logits, scores), seen | holds
        return softmax(scores, seen, values, topk_of(encoding))

    out, logsum = by_queries(compute, q, k, v, q_tokens, k_tokens)
    return out.astype(q.dtype), logsum


def by_queries(
    compute: Callable, q: jax.Array, k: jax.Array, v: jax.Array, q_tokens: Tokens, k_tokens: Tokens
) -> Any:
    """Run `compute`, which returns a pytree of [B, H, Q, ...], for some queries at a time, whose
    tokens have an order. In a row each of PIECES of the queries is given no keys after its own."""
    queries, keys = q.shape[2], k.shape[2]
    of_row = order_of(q_tokens, k_tokens) is None
    q_order, k_order = places_of(q_tokens, k_tokens, queries, keys)
    q_tokens, k_tokens = (
        jax.tree.map(jnp.atleast_2d, tokens.replace(order=order, contiguous=False))
        for tokens, order in ((q_tokens, q_order), (k_tokens, k_order))
    )
    scores = SCORES if target.platform() == "cpu" else ON_DEVICE
    size = max(1, scores // (target.share_of_rows(len(q)) * q.shape[1] * keys))
    if queries <= size:
        return compute(q, k, v, q_tokens, k_tokens)

    each = -(-queries // PIECES) if of_row else queries

    def of_piece(first: int, end: int):
        seen = keys - queries + end if of_row else keys
        own, known = part(q_tokens, first, end), part(k_tokens, 0, seen)
        given = k[:, :, :seen], v[:, :, :seen]
        of_rows = jax.checkpoint(lambda q, tokens: compute(q, *given, tokens, known))
        q_blocks = blocks(q[:, :, first:end], 2, min(size, each))
        rows = q_blocks, jax.tree.map(lambda x: blocks(x, 1, min(size, each)), own)
        return jax.lax.map(lambda row: of_rows(*row), rows)

    def joined(*outs):  # [n, B, H, c, ...] each -> [B, H, Q, ...]
        outs = (jnp.moveaxis(out, 0, 2) for out in outs)
        outs = (out.reshape(*out.shape[:2], -1, *out.shape[4:])[:, :, :each] for out in outs)
        return jnp.concatenate(list(outs), axis=2)[:, :, :queries]

    outs = [of_piece(i, min(i + each, queries)) for i in range(0, queries, each)]
    return jax.tree.map(joined, *outs)


def blocks(x: jax.Array, axis: int, size: int, fill: int = 0) -> jax.Array:
    """Cut an axis into blocks, padded at the end; the first axis then counts them."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = 0, -x.shape[axis] % size
    x = jnp.pad(x, widths, constant_values=fill)
    return jnp.moveaxis(x.reshape(*x.shape[:axis], -1, size, *x.shape[axis + 1 :]), axis, 0)
