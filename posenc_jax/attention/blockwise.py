"""Attention block by block, with a gradient of its own: memory is linear in the length.

Forward, each block of queries meets the blocks of keys it sees and keeps a running maximum and sum;
saved are the output and the log of the sum. Backward, the weights are made again. Blocks that lie
in the future or before a window are never visited, but for positions that are given. Up to UNROLLED
keys there is no loop, and memory is that of half the matrix.

Scores lie keys by queries, [c, R c] for R heads that share their keys: every product then reads its
operands as they lie, and what is reduced or broadcast runs along the queries, side by side in
memory. Positions, and what an encoding holds fixed, get no gradient; there is no forward mode.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posenc_jax.attention.plain import check_fits, has_bias, turn
from posenc_jax.encoding import DistanceBias, Encoding, Phase, trained_mask

NONE = -1e30  # below every score; a row that sees no key stays at it
HIGHEST = lax.Precision.HIGHEST
UNROLLED = 512  # keys up to which the blocks at one distance are taken at once, without a loop


class Shape(NamedTuple):
    """What the program is compiled for."""

    block: int
    offset: int  # blocks of keys before the first block of queries
    window: int | None
    ordered: bool  # what is seen follows `Places.order`, not the places in the row
    learned: bool  # the bias has a gradient


class Places(NamedTuple):
    """Who sees whom, beyond causality, by block; None where that decides nothing."""

    segments: tuple[jax.Array, jax.Array] | None = None  # [n, B, c] and [m, B, c]
    order: tuple[jax.Array, jax.Array] | None = None  # [n, B or 1, c] and [m, B or 1, c]


class Positioned(NamedTuple):
    """A bias that is asked for block by block."""

    encoding: Encoding
    q_positions: Any  # [n, c] or [n, B, c]; None in a gradient
    k_positions: Any


Bias = None | jax.Array | Positioned  # an array is the curve of the distances 0 .. S-1, [H, S]


class Pairs(NamedTuple):
    """Blocks of queries from `query` on, each with its own of the blocks of keys from `key` on."""

    query: Any
    key: Any
    blocks: int  # how many of either

    def queries(self, x):
        return lax.dynamic_slice_in_dim(x, self.query, self.blocks)

    def keys(self, x):
        return lax.dynamic_slice_in_dim(x, self.key, self.blocks)

    def put_queries(self, x, part):
        return lax.dynamic_update_slice_in_dim(x, part, self.query, axis=0)

    def put_keys(self, x, part):
        return lax.dynamic_update_slice_in_dim(x, part, self.key, axis=0)


def block_size(keys: int, bias: Bias = None) -> int:
    """As measured; a bias that is asked for takes more memory than the scores it is added to."""
    largest = 128 if isinstance(bias, Positioned) else 256
    return min(largest, 64 if keys < 256 else 128 if keys < 1024 else 256)


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
    repeats = heads // groups
    grown = encoding.query_scale(q_positions)
    grown = jnp.ones((1, 1)) if grown is None else jnp.atleast_2d(grown)
    q = (q * (grown / size**0.5)[:, None, :, None]).astype(q.dtype)
    bias = _bias(encoding, heads, keys, q_positions, k_positions, contiguous)
    learned = any(jax.tree.leaves(trained_mask(encoding)))

    # Queries are the last of the keys: filled up in front to a whole block, and both at the end.
    c = block or block_size(keys, bias)
    front = (keys - queries) % c if order is None else 0
    of_queries = (front, -(front + queries) % c)
    of_keys = (0, -keys % c)

    def blocks(x, fill, axis=-1, value=0):  # of c along an axis, which comes first
        axis %= x.ndim
        widths = [(0, 0)] * x.ndim
        widths[axis] = fill
        x = jnp.pad(x, widths, constant_values=value)
        return jnp.moveaxis(x.reshape(*x.shape[:axis], -1, c, *x.shape[axis + 1 :]), axis, 0)

    def places(pair, q_value, k_value):
        return (
            blocks(jnp.atleast_2d(pair[0]), of_queries, value=q_value),
            blocks(jnp.atleast_2d(pair[1]), of_keys, value=k_value),
        )

    q = blocks(q.reshape(batch, groups, repeats, queries, size), of_queries, 3)
    k, v = blocks(k, of_keys, 2), blocks(v, of_keys, 2)
    if isinstance(bias, Positioned):
        bias = bias._replace(
            q_positions=blocks(q_positions, of_queries), k_positions=blocks(k_positions, of_keys)
        )
    elif bias is not None:
        bias = jnp.pad(bias, ((0, 0), (c, of_keys[1] + c)))
    seen = Places(
        segments and places(segments, -1, -2),
        order and places(order, 0, np.iinfo(np.int32).max),  # what fills up comes after all
    )
    shape = Shape(c, (keys - queries) // c, window, order is not None, learned)
    q = q.reshape(len(q), batch, groups, repeats * c, size)
    out: Any = _attention(shape, q, k, v, bias, seen)  # [n, B, G, K, R c]
    out = out.reshape(len(q), batch, groups, size, repeats, c)
    out = jnp.transpose(out, (1, 2, 4, 0, 5, 3)).reshape(batch, heads, len(q) * c, size)
    return out[:, :, front : front + queries]


def _bias(encoding, heads: int, keys: int, q_positions, k_positions, contiguous: bool) -> Bias:
    if not has_bias(encoding):
        return None
    check_fits(encoding, "heads", heads)
    if contiguous and isinstance(encoding, DistanceBias):
        return encoding.curve(jnp.arange(keys)).astype(jnp.float32)
    return Positioned(encoding, q_positions, k_positions)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(shape: Shape, q, k, v, bias: Bias, places: Places):
    return _forward(shape, q, k, v, bias, places)[0]


def _forward(shape: Shape, q, k, v, bias, places):
    """[n, B, G, K, R c] and the log of each query's sum, [n, B, G, R c]."""
    v_turned = v.swapaxes(3, 4)

    def add(state, pairs: Pairs):
        acc, top, total = state
        s = _scores(shape, pairs, q, k, bias, places)
        before = pairs.queries(top)
        now = jnp.maximum(before, s.max(axis=3))
        p = jnp.exp(s - now[:, :, :, None])
        shrunk = jnp.exp(before - now)
        added = _product("nbgks,nbgsq->nbgkq", pairs.keys(v_turned), p.astype(v.dtype))
        return (
            pairs.put_queries(acc, pairs.queries(acc) * shrunk[:, :, :, None] + added),
            pairs.put_queries(top, now),
            pairs.put_queries(total, pairs.queries(total) * shrunk + p.sum(axis=3)),
        )

    zero = _zero(q, k, v, bias, places)
    rows = jnp.broadcast_to(zero, q.shape[:4])
    state = jnp.broadcast_to(zero, q.swapaxes(3, 4).shape), rows + NONE, rows
    acc, top, total = _over_pairs(shape, q, k, add, state)
    total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
    return (acc / total[:, :, :, None]).astype(q.dtype), top + jnp.log(total)


def _saved(shape: Shape, q, k, v, bias, places):
    out, lse = _forward(shape, q, k, v, bias, places)
    return out, (q, k, v, bias, places, out, lse)


def _backward(shape: Shape, saved, d_out):
    q, k, v, bias, places, out, lse = saved
    delta = jnp.sum(d_out.astype(jnp.float32) * out.astype(jnp.float32), axis=3)
    d_out = d_out.swapaxes(3, 4)
    k_turned = k.swapaxes(3, 4)

    def add(state, pairs: Pairs):
        d_q, d_k, d_v, d_trained = state
        s = _scores(shape, pairs, q, k, bias, places)
        p = jnp.exp(s - pairs.queries(lse)[:, :, :, None])
        d_i = pairs.queries(d_out)
        d_v_j = _product("nbgsq,nbgqk->nbgsk", p.astype(v.dtype), d_i)
        d_p = _product("nbgsk,nbgqk->nbgsq", pairs.keys(v), d_i)
        d_s = p * (d_p - pairs.queries(delta)[:, :, :, None])
        d_trained = _add_to_bias(shape, pairs, d_trained, bias, d_s)
        d_s = d_s.astype(q.dtype)
        d_q_i = _product("nbgks,nbgsq->nbgkq", pairs.keys(k_turned), d_s)
        d_k_j = _product("nbgsq,nbgqk->nbgsk", d_s, pairs.queries(q))
        return (
            pairs.put_queries(d_q, pairs.queries(d_q) + d_q_i),
            pairs.put_keys(d_k, pairs.keys(d_k) + d_k_j),
            pairs.put_keys(d_v, pairs.keys(d_v) + d_v_j),
            d_trained,
        )

    zero = _zero(q, k, v, bias, places, d_out)
    zeros = (jnp.broadcast_to(zero, x.shape) for x in (q.swapaxes(3, 4), k, v))
    trained, _ = _trained(bias)
    d_trained = [jnp.broadcast_to(zero.astype(leaf.dtype), leaf.shape) for leaf in trained]
    state = (*zeros, d_trained)
    d_q, d_k, d_v, d_trained = _over_pairs(shape, q, k, add, state)
    d_bias = _gradient(bias, [_summed(d, x) for d, x in zip(d_trained, trained, strict=True)])
    found = zip((d_q.swapaxes(3, 4), d_k, d_v), (q, k, v), strict=True)
    return *(_summed(d, x).astype(x.dtype) for d, x in found), d_bias, None


_attention.defvjp(_saved, _backward)


def _over_pairs(shape: Shape, q, k, add, state):
    """Adds every pair of a block of queries and one of keys that some of them may see."""

    def one(state, row):
        return add(state, Pairs(row[0], row[1], 1)), None

    c, window = shape.block, shape.window
    pairs = [
        (i, j)
        for i in range(len(q))
        for j in range(len(k))
        if shape.ordered
        or (
            j <= i + shape.offset
            and (window is None or (i + shape.offset - j) * c - (c - 1) < window)
        )
    ]
    if len(k) * c > UNROLLED:
        rows = np.array(pairs, np.int32).reshape(-1, 2)
        return lax.scan(one, state, rows)[0]
    for back in sorted({i - j for i, j in pairs}):
        # Who sees whom hangs on i - j alone, so these follow one another without a gap.
        alike = [(i, j) for i, j in pairs if i - j == back]
        state = add(state, Pairs(*alike[0], len(alike)))
    return state


def _scores(shape: Shape, pairs: Pairs, q, k, bias, places):  # [n, B, G, c, R c], float32
    """-inf where a key is not seen."""
    c = shape.block
    q_i = pairs.queries(q)
    s = _product("nbgsk,nbgqk->nbgsq", pairs.keys(k), q_i)
    by_head = (*s.shape[:4], -1, c)  # [n, B, G, c, R, c]
    s = s.reshape(by_head)
    if bias is not None:
        block = _bias_block(shape, pairs, bias)  # [n or 1, B or 1, H, c, c]
        block = block.reshape(*block.shape[:2], s.shape[2], s.shape[4], c, c)
        s = s + block.swapaxes(3, 4)
    if places.order is None:
        place = jnp.arange(c)
        far = (pairs.query + shape.offset - pairs.key) * c
        back = (far + place[None, :] - place[:, None])[None, None]
        seen = back >= 0
    else:
        back = _against(pairs, places.order, jnp.subtract)
        seen = _against(pairs, places.order, jnp.greater_equal)  # a difference could overflow
    if shape.window is not None:
        seen &= back < shape.window
    if places.segments is not None:
        seen = seen & _against(pairs, places.segments, jnp.equal)
    s = jnp.where(seen[:, :, None, :, None, :], s, -jnp.inf)
    return s.reshape(q_i.shape[:3] + (c, -1))


def _against(pairs: Pairs, of, compare):  # [n, B or 1, c, c], keys by queries
    return compare(pairs.queries(of[0])[:, :, None, :], pairs.keys(of[1])[:, :, :, None])


def _bias_block(shape: Shape, pairs: Pairs, bias):  # [n or 1, B or 1, H, c, c], keys by queries
    if isinstance(bias, Positioned):
        block = _positioned(pairs, bias)
        return block if block.ndim == 5 else block[:, None]
    line = lax.dynamic_slice_in_dim(bias, _nearest(shape, pairs), 2 * shape.block, axis=1)
    return _skew(line)[None, None]


def _nearest(shape: Shape, pairs: Pairs):
    """Where the distances between such blocks begin in the curve, which c places precede."""
    return (pairs.query + shape.offset - pairs.key) * shape.block + 1


def _skew(line):  # [H, 2c] -> [H, c, c], where [s, q] is line[c - 1 + q - s]
    heads, double = line.shape
    c = double // 2
    rows = jnp.broadcast_to(line[:, None], (heads, c, double)).reshape(heads, -1)
    return rows[:, : c * (double - 1)].reshape(heads, c, double - 1)[:, :, c - 1 :]


def _add_to_bias(shape: Shape, pairs: Pairs, d_trained: list, bias, d_scores):
    if bias is None or not shape.learned:
        return d_trained
    c = shape.block
    block = d_scores.reshape(*d_scores.shape[:4], -1, c).swapaxes(3, 4)  # [n, B, G, R, c, c]
    if isinstance(bias, Positioned):
        block = block.reshape(*block.shape[:2], -1, c, c)
        trained, put = _trained(bias)
        value, pull = jax.vjp(lambda arrays: _positioned(pairs, put(arrays)), trained)
        (added,) = pull(block if value.ndim == 5 else block.sum(axis=1))
        return [d + one for d, one in zip(d_trained, added, strict=True)]
    (d_curve,) = d_trained
    block = block.sum(axis=(0, 1)).reshape(-1, c, c)
    (line,) = jax.linear_transpose(_skew, jnp.zeros_like(block, shape=(len(block), 2 * c)))(block)
    start = _nearest(shape, pairs)
    line += lax.dynamic_slice_in_dim(d_curve, start, 2 * c, axis=1)
    return [lax.dynamic_update_slice_in_dim(d_curve, line, start, axis=1)]


def _positioned(pairs: Pairs, bias: Positioned):  # [n, H, c, c] or [n, B, H, c, c]
    """Keys by queries."""
    places = pairs.queries(bias.q_positions), pairs.keys(bias.k_positions)
    block: Any = jax.vmap(bias.encoding.bias)(*places)
    return block.swapaxes(-1, -2)


def _trained(bias: Bias):
    """The arrays of a bias that can have a gradient, and the bias with others in their place."""
    if not isinstance(bias, Positioned):
        return [] if bias is None else [bias], lambda arrays: arrays[0]
    leaves, tree = jax.tree.flatten(bias.encoding)

    def put(arrays):
        given = iter(arrays)
        merged = [next(given) if _is_real(leaf) else leaf for leaf in leaves]
        return bias._replace(encoding=jax.tree.unflatten(tree, merged))

    return [leaf for leaf in leaves if _is_real(leaf)], put


def _gradient(bias: Bias, arrays: list):
    """In the form of a bias; None for what has none, such as whole numbers."""
    if not isinstance(bias, Positioned):
        return arrays[0] if arrays else None
    leaves, tree = jax.tree.flatten(bias.encoding)
    given = iter(arrays)
    merged = [next(given) if _is_real(leaf) else None for leaf in leaves]
    return Positioned(jax.tree.unflatten(tree, merged), None, None)


def _is_real(leaf) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _zero(*trees) -> jax.Array:
    """A zero that varies over the devices of a shard_map as any of these does."""
    leaves = jax.tree.leaves(trees)
    return sum(
        (jnp.zeros_like(x, jnp.float32, shape=()) for x in leaves), jnp.zeros((), jnp.float32)
    )


def _summed(gradient: jax.Array, primal: jax.Array) -> jax.Array:
    """Over the devices of a shard_map that share the primal."""
    axes = tuple(_varying(gradient) - _varying(primal))
    return lax.psum(gradient, axes) if axes else gradient


def _varying(x: jax.Array) -> frozenset:
    """The axes of a shard_map along which an array differs; older releases call it vma."""
    kind = jax.typeof(x)
    axes = getattr(kind, "manual_axis_type", None)
    return getattr(kind, "vma", frozenset()) if axes is None else axes.varying


def _product(names: str, a, b):
    return jnp.einsum(names, a, b, precision=HIGHEST, preferred_element_type=jnp.float32)
