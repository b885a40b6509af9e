"""Rows that are cut along their length over devices: each holds a piece of every row, and the keys
travel around a ring of the devices (Liu et al. 2023, arXiv:2310.01889)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from posenc_jax.attention.merging import NONE, merge
from posenc_jax.attention.regions import phase_between
from posenc_jax.encoding import Encoding, Phase, Tokens
from posenc_jax.positions import in_document
from posenc_jax.runtime.devices import DATA, SEQUENCE


def over_pieces(call: Callable, mesh: Mesh, whole: Any, rows: Any) -> Any:
    """Call a function of whole arrays and of rows, [T] or [B, T, ...], on each piece of the rows;
    it returns arrays [B, T, ...]."""

    def cut(leaf) -> PartitionSpec:
        if leaf.ndim == 1:
            return PartitionSpec(SEQUENCE)
        return PartitionSpec(DATA if len(leaf) > 1 else None, SEQUENCE)

    specs = PartitionSpec(), jax.tree.map(cut, rows)
    out = PartitionSpec(DATA, SEQUENCE)
    # Without the check, gradients of whole arrays are summed over the devices once, at the end.
    mapped = jax.shard_map(call, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    return mapped(whole, rows)


def to_be_cut(row: Tokens) -> Tokens:
    """Return the tokens of whole rows with their order, which pieces do not tell."""
    order, document = row.order, row.document
    if order is None:
        length = row.position.shape[-1]
        order = jnp.arange(length) if document is None else in_document(document)
    return row.replace(order=order, contiguous=False, axis=SEQUENCE)


def read_in_turn(encoding: Encoding, x: jax.Array, axis: str) -> Any:  # x [B, T, D]
    """Read the features of a piece, which may be sums over all earlier tokens of the row."""
    devices, is_first = jax.lax.axis_size(axis), jax.lax.axis_index(axis) == 0
    to_next = [(i, i + 1) for i in range(devices - 1)]
    features = alone = encoding.read(x)
    for _ in range(devices - 1):  # after as many rounds as there are earlier pieces, it is right
        last = jax.tree.map(lambda leaf: leaf[:, -1:], features)
        before = jax.lax.ppermute(last, axis, to_next)
        features = jax.tree.map(partial(jnp.where, is_first), alone, encoding.read(x, before))
    return features


def around_ring(
    compute: Callable,  # plain or blockwise, with or without regions
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K], or another size than keys have
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None,  # of this piece alone, so unused
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K] of the values, and [B, H, Q]
    """Run `compute` against the keys of each device in turn and merge."""
    axis = k_tokens.axis
    assert axis is not None
    devices = jax.lax.axis_size(axis)
    to_next = [(i, (i + 1) % devices) for i in range(devices)]

    def add(state, _):
        merged, (k, v, k_tokens) = state
        between = phase_between(encoding, q_tokens.position, k_tokens.position)
        part = compute(q, k, v, encoding, q_tokens, k_tokens, phase=between)
        passed_on = jax.lax.ppermute((k, v, k_tokens), axis, to_next)
        return (merge([merged, part]), passed_on), None

    nothing = (
        jnp.zeros((*q.shape[:3], v.shape[3]), jnp.float32),
        jnp.full(q.shape[:3], NONE, jnp.float32),
    )
    (merged, _), _ = jax.lax.scan(add, (nothing, (k, v, k_tokens)), length=devices)
    return merged[0].astype(q.dtype), merged[1]
