"""Attention block by block, with a gradient of its own: memory is linear in the length.

Forward, each block of queries runs over the blocks of keys it sees and keeps a running maximum and
sum; saved are the output and the log of the sum. Backward, each block of keys runs over the blocks
of queries that see it, and makes the weights again. Blocks that nobody sees are never visited.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posenc_jax.attention.plain import check_fits, turn
from posenc_jax.encoding import DistanceBias, Encoding, Phase, trained_mask

NONE = -1e30  # below every score; a row that sees no key stays at it
HIGHEST = lax.Precision.HIGHEST


class Shape(NamedTuple):
    """What the program is compiled for."""

    block: int
    offset: int  # blocks of keys before the first block of queries
    window: int | None
    ordered: bool  # what is seen follows `Places.order`, not the places in the row
    learned: bool  # the bias has a gradient


class Places(NamedTuple):
    """Who sees whom, beyond causality; None where that decides nothing."""

    segments: tuple[jax.Array, jax.Array] | None = None  # [B, Q] and [B, S]
    order: tuple[jax.Array, jax.Array] | None = None  # [B or 1, Q] and [B or 1, S]


class Positioned(NamedTuple):
    """A bias that is asked for block by block."""

    encoding: Encoding
    q_positions: Any  # [Q] or [B, Q]; None in a gradient
    k_positions: Any


Bias = None | jax.Array | Positioned  # an array is the curve of the distances 0 .. S-1, [H, S]


def block_size(keys: int) -> int:
    return 128 if keys >= 256 else 64


def blockwise(
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K]
    encoding: Encoding,
    *,
    phase: Phase | None,
    q_positions: jax.Array,  # [Q] or [B, Q]
    k_positions: jax.Array,  # [S] or [B, S]
    contiguous: bool = False,
    order: tuple[jax.Array, jax.Array] | None = None,
    segments: tuple[jax.Array, jax.Array] | None = None,
    window: int | None = None,
    block: int | None = None,
) -> jax.Array:  # [B, H, Q, K]
    """What `plain` computes, from the same arguments."""
    q, k, v = turn(q, k, v, encoding, phase)
    batch, heads, queries, size = q.shape
    groups, keys = k.shape[1:3]
    grown = encoding.query_scale(q_positions)
    grown = jnp.ones((1, 1)) if grown is None else jnp.atleast_2d(grown)
    q = (q * (grown / size**0.5)[:, None, :, None]).astype(q.dtype)
    bias = _bias(encoding, heads, keys, q_positions, k_positions, contiguous)
    learned = any(jax.tree.leaves(trained_mask(encoding)))

    # Queries are the last of the keys: filled up in front to a whole block, and both at the end.
    c = block or block_size(keys)
    front = (keys - queries) % c if order is None else 0
    tail_q, tail_k = -(front + queries) % c, -keys % c
    q = q.reshape(batch, groups, heads // groups, queries, size)
    q = jnp.pad(q, ((0, 0), (0, 0), (0, 0), (front, tail_q), (0, 0)))
    k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, tail_k), (0, 0))) for x in (k, v))

    def fill(pair, q_value, k_value):
        q_places, k_places = (jnp.atleast_2d(x) for x in pair)
        return (
            jnp.pad(q_places, ((0, 0), (front, tail_q)), constant_values=q_value),
            jnp.pad(k_places, ((0, 0), (0, tail_k)), constant_values=k_value),
        )

    places = Places(
        segments and fill(segments, -1, -2),
        order and fill(order, 0, np.iinfo(np.int32).max),  # what fills up comes after all queries
    )
    if isinstance(bias, Positioned):
        filled = fill((q_positions, k_positions), 0, 0)
        if q_positions.ndim == k_positions.ndim == 1:
            filled = tuple(x[0] for x in filled)
        bias = bias._replace(q_positions=filled[0], k_positions=filled[1])
    elif bias is not None:
        bias = jnp.pad(bias, ((0, 0), (c, tail_k + c)))
    shape = Shape(c, (keys - queries) // c, window, order is not None, learned)
    out: Any = _attention(shape, q, k, v, bias, places)
    return out[:, :, :, front : front + queries].reshape(batch, heads, queries, size)


def _bias(encoding, heads: int, keys: int, q_positions, k_positions, contiguous: bool) -> Bias:
    if jax.eval_shape(encoding.bias, q_positions[..., :1], k_positions[..., :1]) is None:
        return None
    check_fits(encoding, "heads", heads)
    if contiguous and isinstance(encoding, DistanceBias):
        return encoding.curve(jnp.arange(keys)).astype(jnp.float32)
    return Positioned(encoding, q_positions, k_positions)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(shape: Shape, q, k, v, bias: Bias, places: Places):
    return _forward(shape, q, k, v, bias, places)[0]


def _forward(shape: Shape, q, k, v, bias, places):
    """[B, G, R, Q, K] and the log of each row's sum, [B, G, R, Q]."""

    def add(state, pair):
        acc, top, total = state
        i, j = pair
        s = _scores(shape, q, k, bias, places, i, j)
        before = _cut(top, i, shape, 3)
        now = jnp.maximum(before, s.max(axis=-1))
        p = jnp.exp(s - now[..., None])
        shrunk = jnp.exp(before - now)
        added = _product("bgrqs,bgsk->bgrqk", p.astype(v.dtype), _cut(v, j, shape, 2))
        acc_i = _cut(acc, i, shape, 3) * shrunk[..., None] + added
        total_i = _cut(total, i, shape, 3) * shrunk + p.sum(axis=-1)
        return (
            _put(acc, acc_i, i, shape, 3),
            _put(top, now, i, shape, 3),
            _put(total, total_i, i, shape, 3),
        ), None

    rows = q.shape[:4]
    state = jnp.zeros(q.shape, jnp.float32), jnp.full(rows, NONE), jnp.zeros(rows)
    (acc, top, total), _ = lax.scan(add, state, _pairs(shape, q, k))
    total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
    return (acc / total[..., None]).astype(q.dtype), top + jnp.log(total)


def _saved(shape: Shape, q, k, v, bias, places):
    out, lse = _forward(shape, q, k, v, bias, places)
    return out, (q, k, v, bias, places, out, lse)


def _backward(shape: Shape, saved, d_out):
    q, k, v, bias, places, out, lse = saved
    delta = jnp.sum(d_out.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)

    def add(state, pair):
        d_q, d_k, d_v, d_bias = state
        i, j = pair
        q_i, k_j, v_j = _cut(q, i, shape, 3), _cut(k, j, shape, 2), _cut(v, j, shape, 2)
        d_i = _cut(d_out, i, shape, 3)
        s = _scores(shape, q, k, bias, places, i, j)
        p = jnp.exp(s - _cut(lse, i, shape, 3)[..., None])
        d_v_j = _product("bgrqs,bgrqk->bgsk", p.astype(v.dtype), d_i)
        d_p = _product("bgrqk,bgsk->bgrqs", d_i, v_j)
        d_s = p * (d_p - _cut(delta, i, shape, 3)[..., None])
        d_bias = _add_to_bias(shape, d_bias, bias, d_s, i, j)
        d_s = d_s.astype(q.dtype)
        d_q_i = _product("bgrqs,bgsk->bgrqk", d_s, k_j)
        d_k_j = _product("bgrqs,bgrqk->bgsk", d_s, q_i)
        return (
            _put(d_q, _cut(d_q, i, shape, 3) + d_q_i, i, shape, 3),
            _put(d_k, _cut(d_k, j, shape, 2) + d_k_j, j, shape, 2),
            _put(d_v, _cut(d_v, j, shape, 2) + d_v_j, j, shape, 2),
            d_bias,
        ), None

    state = *(jnp.zeros(x.shape, jnp.float32) for x in (q, k, v)), _no_gradient(bias)
    (d_q, d_k, d_v, d_bias), _ = lax.scan(add, state, _pairs(shape, q, k))
    return d_q.astype(q.dtype), d_k.astype(k.dtype), d_v.astype(v.dtype), d_bias, None


_attention.defvjp(_saved, _backward)


def _pairs(shape: Shape, q, k) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of queries, and of keys that some of them may see."""
    c = shape.block
    pairs = [
        (i, j)
        for i in range(q.shape[3] // c)
        for j in range(k.shape[2] // c)
        if shape.ordered
        or (
            j <= i + shape.offset
            and (shape.window is None or (i + shape.offset - j) * c - (c - 1) < shape.window)
        )
    ]
    i, j = np.array(pairs, np.int32).reshape(-1, 2).T
    return i, j


def _scores(shape: Shape, q, k, bias, places, i, j):  # [B, G, R, c, c], float32
    """-inf where a key is not seen."""
    c = shape.block
    batch, groups, repeats = q.shape[:3]
    s = _product("bgrqk,bgsk->bgrqs", _cut(q, i, shape, 3), _cut(k, j, shape, 2))
    if bias is not None:
        block = _bias_block(shape, bias, i, j)  # [B or 1, H, c, c]
        s = s + block.reshape(len(block), groups, repeats, c, c)
    place = jnp.arange(c)
    if places.order is None:
        back = (i + shape.offset - j) * c + place[:, None] - place[None, :]
        back = back[None]
    else:
        q_order, k_order = places.order
        back = _cut(q_order, i, shape, 1)[:, :, None] - _cut(k_order, j, shape, 1)[:, None, :]
    back = back[:, None, None]
    seen = back >= 0
    if shape.window is not None:
        seen &= back < shape.window
    if places.segments is not None:
        of_q, of_k = places.segments
        same = _cut(of_q, i, shape, 1)[:, :, None] == _cut(of_k, j, shape, 1)[:, None, :]
        seen = seen & same[:, None, None]
    return jnp.where(seen, s, -jnp.inf)


def _bias_block(shape: Shape, bias, i, j):  # [B or 1, H, c, c]
    c = shape.block
    if isinstance(bias, Positioned):
        block = _positioned(shape, bias, i, j)(bias.encoding)
        return block if block.ndim == 4 else block[None]
    # Distances from d c - (c - 1) to d c + (c - 1); those before 0 are masked.
    far = (i + shape.offset - j) * c
    return _skew(lax.dynamic_slice_in_dim(bias, far, 2 * c, axis=1))[None]


def _skew(line):  # [H, 2c], line[c + d] is that of distance d -> [H, c, c], [q, s] of q - s
    heads, double = line.shape
    c = double // 2
    rows = jnp.broadcast_to(line[:, None, ::-1], (heads, c, double)).reshape(heads, -1)
    return rows[:, : c * (double - 1)].reshape(heads, c, double - 1)[:, :, c - 1 :]


def _unskew(block):  # the transpose of _skew: [H, c, c] -> [H, 2c]
    return jax.linear_transpose(_skew, jnp.zeros((block.shape[0], 2 * block.shape[1])))(block)[0]


def _add_to_bias(shape: Shape, d_bias, bias, d_scores, i, j):
    if bias is None or not shape.learned:
        return d_bias
    batch, groups, repeats = d_scores.shape[:3]
    block = d_scores.reshape(batch, groups * repeats, *d_scores.shape[3:])
    if isinstance(bias, Positioned):
        value, pull = jax.vjp(_positioned(shape, bias, i, j), bias.encoding)
        (added,) = pull(block if value.ndim == 4 else block.sum(axis=0))
        return d_bias._replace(encoding=jax.tree.map(jnp.add, d_bias.encoding, added))
    far = (i + shape.offset - j) * shape.block
    line = _unskew(block.sum(axis=0))
    line += lax.dynamic_slice_in_dim(d_bias, far, 2 * shape.block, axis=1)
    return lax.dynamic_update_slice_in_dim(d_bias, line, far, axis=1)


def _positioned(shape: Shape, bias: Positioned, i, j):
    q_positions = _cut(bias.q_positions, i, shape, -1)
    k_positions = _cut(bias.k_positions, j, shape, -1)
    return lambda encoding: encoding.bias(q_positions, k_positions)


def _no_gradient(bias):
    """Of the shape of a bias's gradient; whole numbers in it have none."""
    if bias is None:
        return None
    if isinstance(bias, Positioned):
        return Positioned(jax.tree.map(jnp.zeros_like, bias.encoding), None, None)
    return jnp.zeros_like(bias)


def _product(names: str, a, b):
    return jnp.einsum(names, a, b, precision=HIGHEST, preferred_element_type=jnp.float32)


def _cut(x, number, shape: Shape, axis: int):
    return lax.dynamic_slice_in_dim(x, number * shape.block, shape.block, axis=axis % x.ndim)


def _put(x, part, number, shape: Shape, axis: int):
    return lax.dynamic_update_slice_in_dim(x, part, number * shape.block, axis=axis)
