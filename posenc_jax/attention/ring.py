"""Rows that are cut along their length over devices: each holds two pieces of every row, and the
keys travel around a ring of the devices (Liu et al. 2023, arXiv:2310.01889)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from posenc_jax.attention.regions import NONE, merge, phase_between
from posenc_jax.encoding import Encoding, Phase, Tokens
from posenc_jax.layers import bearer, overrides, topk_of
from posenc_jax.positions import in_document
from posenc_jax.runtime.devices import DATA, SEQUENCE


def check(encoding: Encoding) -> None:
    """Reject an encoding with a layer whose attention reads whole rows."""
    for index in range(encoding.period):
        layer = encoding.layer(index)
        own = overrides(layer, "attend") and not bearer(layer, "attend").attends_across_devices
        if own or topk_of(layer) is not None:
            raise ValueError(
                f"encoding {layer.name!r} reads whole rows, which cannot be cut over devices: use "
                "sequence = 1"
            )


def over_pieces(call: Callable, mesh: Mesh, whole: Any, rows: Any) -> Any:
    """Call a function of whole arrays and of rows, [T] or [B, T, ...], on each device's tokens of
    the rows, as they are dealt; it returns arrays [B, T, ...]."""

    def cut(leaf) -> PartitionSpec:
        if leaf.ndim == 1:
            return PartitionSpec(SEQUENCE)
        return PartitionSpec(DATA if len(leaf) > 1 else None, SEQUENCE)

    def run(whole, rows):
        return in_order(call(whole, dealt(rows, SEQUENCE)), SEQUENCE)

    specs = PartitionSpec(), jax.tree.map(cut, rows)
    out = PartitionSpec(DATA, SEQUENCE)
    # Without the check, gradients of whole arrays are summed over the devices once, at the end.
    mapped = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    return mapped(whole, rows)


def dealt(tree: Any, axis: str, along: int = 1, turn: int = 1) -> Any:
    """Exchange consecutive tokens, [T] or [B, T, ...], for two of 2N pieces of the row, one from
    its front and one from its back: causal attention is then the same work on each of N devices."""
    devices = jax.lax.axis_size(axis)
    moves = [[(n, owner(2 * n + half, devices))[::turn] for n in range(devices)] for half in (0, 1)]

    def exchanged(leaf):
        at = min(along, leaf.ndim - 1)
        halves = zip(jnp.split(leaf, 2, at), moves, strict=True)
        return jnp.concatenate([jax.lax.ppermute(half, axis, to) for half, to in halves], at)

    return jax.tree.map(exchanged, tree)


def in_order(tree: Any, axis: str, along: int = 1) -> Any:
    """The inverse of `dealt`."""
    return dealt(tree, axis, along, turn=-1)


def owner(piece: int, devices: int) -> int:
    """The device that a piece is dealt to, whose even piece comes first."""
    return min(piece, 2 * devices - 1 - piece)


def to_be_cut(row: Tokens, fill: int) -> Tokens:
    """Add each token's order, which a piece alone cannot tell, and pad with `fill` tokens that no
    real token sees."""
    order, document = row.order, row.document
    if order is None:
        length = row.position.shape[-1]
        order = jnp.arange(length) if document is None else in_document(document)

    def filled(line, **how):
        return jnp.pad(line, [(0, 0)] * (line.ndim - 1) + [(0, fill)], **how)

    return row.replace(
        position=filled(row.position, mode="edge"),
        document=None if document is None else filled(document, mode="edge"),
        order=filled(order, constant_values=np.iinfo(np.int32).max),
        contiguous=False,
        axis=SEQUENCE,
    )


def read(encoding: Encoding, x: jax.Array, tokens: Tokens) -> Any:  # x [B, T, D]
    """Read the features of tokens, which may depend on all earlier tokens of their document.

    Of consecutive tokens, the last features of each device go to the next one, as often as there
    are devices before it.
    """
    axis = tokens.axis
    assert axis is not None
    x, document = in_order((x, tokens.document), axis)
    devices = jax.lax.axis_size(axis)

    def of_previous(tree):  # the last token of the device before this one; zeros of the first
        to_next = [(i, i + 1) for i in range(devices - 1)]
        last = jax.tree.map(lambda leaf: leaf[:, -1:], tree)
        return jax.lax.ppermute(last, axis, to_next)

    features = alone = encoding.read(x, document=document)
    is_start = jnp.broadcast_to(jax.lax.axis_index(axis) == 0, (len(x), 1))  # of a document
    if document is not None:
        is_start |= of_previous(document) != document[:, :1]

    def chosen(alone, following):
        return jnp.where(is_start.reshape(-1, *[1] * (alone.ndim - 1)), alone, following)

    for _ in range(devices - 1):
        following = encoding.read(x, of_previous(features), document)
        features = jax.tree.map(chosen, alone, following)
    return dealt(features, axis)


def around(axis: str, keys: Any, state: Any, add: Callable) -> Any:
    """Return `add(state, keys)` over the keys of every device in turn: a device's own, then those
    of ever earlier devices, and after the first device those of the last ones."""
    devices = jax.lax.axis_size(axis)
    to_next = [(i, (i + 1) % devices) for i in range(devices)]

    def turn(carried, _):
        state, keys = carried
        return (add(state, keys), jax.lax.ppermute(keys, axis, to_next)), None

    (state, _), _ = jax.lax.scan(turn, (state, keys), length=devices)
    return state


def attention(
    compute: Callable,  # plain or blockwise, with or without regions
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K], or another size than keys have
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None,  # of this device's tokens alone, so unused
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K] of the values, and [B, H, Q]
    """Run `compute` against the keys of each device in turn and merge."""

    def add(merged, keys):
        k, v, k_tokens = keys
        between = phase_between(encoding, q_tokens.position, k_tokens.position)
        part = compute(q, k, v, encoding, q_tokens, k_tokens, phase=between)
        return merge([merged, part])

    nothing = (
        jnp.zeros((*q.shape[:3], v.shape[3]), jnp.float32),
        jnp.full(q.shape[:3], NONE, jnp.float32),
    )
    axis = k_tokens.axis
    assert axis is not None
    out, logsum = around(axis, (k, v, k_tokens), nothing, add)
    return out.astype(q.dtype), logsum
