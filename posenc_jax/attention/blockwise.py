"""Blockwise attention with a custom gradient: memory is linear in the length.

In the forward pass each block of queries visits the blocks of keys it sees with a running maximum
and sum, and saves the output and the log-sum. The backward pass recomputes the weights. Blocks in
the future, before a window or outside a region are skipped; where positions are given, those in
the future and before a window. Up to UNROLLED keys there is no loop, and memory is that of half
the matrix.

Scores are keys by queries, [c, R c] for R heads that share their keys: products then need no
transpose, and reductions and broadcasts run along the queries, contiguous in memory. Positions get
no gradient, gradients that are not requested are not computed, and there is no forward mode.
"""

import functools
from itertools import groupby
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax
from jax.custom_derivatives import SymbolicZero

from posenc_jax.attention.plain import (
    WHOLE,
    check_fits,
    chunks_of,
    curve_of,
    documents_of,
    order_of,
    query_scale,
    turn,
)
from posenc_jax.attention.regions import NONE
from posenc_jax.encoding import Encoding, KeySum, Phase, Region, Tokens, two_sum
from posenc_jax.layers import bearer, chunk_of, overrides

HIGHEST = lax.Precision.HIGHEST
UNROLLED = 512  # up to this many keys, all blocks at one distance are computed at once


class Shape(NamedTuple):
    """Static properties that the program is compiled for."""

    block: int
    offset: int  # blocks of keys before the first block of queries
    window: int | None
    chunk: int | None  # None also if chunks restart in each document
    ordered: bool  # `Places.order` decides what is visible, not the index in the row
    nearest: int = 0  # least number of tokens back
    first: int | None = None  # only this many first keys of the row are visible


class Places(NamedTuple):
    """Arrays in blocks that restrict which keys are visible; None: no restriction."""

    documents: tuple[jax.Array, jax.Array] | None = None  # [n, B, c] and [m, B, c]
    order: tuple[jax.Array, jax.Array] | None = None  # [n, B or 1, c] and [m, B or 1, c]
    chunks: tuple[jax.Array, jax.Array] | None = None  # the same
    between: tuple[jax.Array, jax.Array] | None = None  # least and most tokens back, [n, B or 1, c]


class Curve(NamedTuple):
    """A bias that depends only on the distance."""

    line: Any  # [H, c + S + c]: distances 0 .. S-1, padded by a block on both sides


class Sums(NamedTuple):
    """A bias that is the difference of two sums, each with its rounding error."""

    q_sum: Any  # [n, B or 1, H, c], like q_rest
    q_rest: Any
    k_sum: Any  # [m, B or 1, H, c], like k_rest
    k_rest: Any


class Called(NamedTuple):
    """An encoding whose `bias` or `logits` is called block by block."""

    encoding: Any
    q_tokens: Any  # Tokens whose leaves are [n, c] or [n, B, c, ...]
    k_tokens: Any


Bias = None | Curve | Sums | Called


class Pairs(NamedTuple):
    """Consecutive pairs of blocks, which start at blocks `query` and `key`."""

    query: Any
    key: Any
    blocks: int  # number of pairs
    whole: bool  # every query sees every key, so that nothing is masked

    def queries(self, x):
        return lax.dynamic_slice_in_dim(x, self.query, self.blocks)

    def keys(self, x):
        return lax.dynamic_slice_in_dim(x, self.key, self.blocks)

    def put_queries(self, x, part):
        return lax.dynamic_update_slice_in_dim(x, part, self.query, axis=0)

    def put_keys(self, x, part):
        return lax.dynamic_update_slice_in_dim(x, part, self.key, axis=0)


def block_size(keys: int, bias: Bias = None) -> int:
    """Return the fastest block size measured; a bias by blocks needs more memory than scores."""
    largest = 128 if isinstance(bias, Called) else 256
    return min(largest, 64 if keys < 256 else 128 if keys < 1024 else 256)


def blockwise(
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K], or another size than keys have
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None = None,
    region: Region = WHOLE,
    block: int | None = None,
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K] of the values, and [B, H, Q]
    """Compute the same as `plain`, block by block."""
    q, k, v = turn(q, k, v, encoding, phase)
    batch, heads, queries, size = q.shape
    groups, keys = k.shape[1:3]
    repeats = heads // groups
    scale = query_scale(encoding, q_tokens, k_tokens, queries, keys)
    scale = jnp.ones((1, 1, 1, 1)) if scale is None else scale
    q = (q * (scale / size**0.5)).astype(q.dtype)
    order, documents = order_of(q_tokens, k_tokens), documents_of(q_tokens, k_tokens)
    moved = region.moved(q_tokens, region.q_position), region.moved(k_tokens, region.k_position)
    bias = _bias(encoding, heads, keys, *moved)

    # Queries are the last keys: pad them in front to align blocks, and both at the end.
    c = block or block_size(keys, bias)
    front = (keys - queries) % c if order is None else 0
    of_queries = (front, -(front + queries) % c)
    of_keys = (0, -keys % c)

    def blocks(x, fill, axis=-1, **options):  # blocks of c along an axis, which becomes the first
        axis %= x.ndim
        widths = [(0, 0)] * x.ndim
        widths[axis] = fill
        x = jnp.pad(x, widths, **options)
        return jnp.moveaxis(x.reshape(*x.shape[:axis], -1, c, *x.shape[axis + 1 :]), axis, 0)

    def places(pair, q_value, k_value):
        return (
            blocks(jnp.atleast_2d(pair[0]), of_queries, constant_values=q_value),
            blocks(jnp.atleast_2d(pair[1]), of_keys, constant_values=k_value),
        )

    def tokens(side: Tokens, fill) -> Tokens:
        position = lax.stop_gradient(side.position)
        consecutive = side.contiguous and position.ndim == 1
        if consecutive:  # over the padding too
            position = position[0] + jnp.arange(-fill[0], len(position) + fill[1])
        return Tokens(
            position=blocks(position, (0, 0) if consecutive else fill),
            contiguous=consecutive,
            document=None if side.document is None else blocks(side.document, fill),
            order=None if side.order is None else blocks(side.order, fill),
            features=jax.tree.map(lambda x: blocks(x, fill, 1), side.features),
        )

    q = blocks(q.reshape(batch, groups, repeats, queries, size), of_queries, 3)
    k, v = blocks(k, of_keys, 2), blocks(v, of_keys, 2)
    if isinstance(bias, Called):
        sides = tokens(bias.q_tokens, of_queries), tokens(bias.k_tokens, of_keys)
        bias = Called(bias.encoding, *sides)
    elif isinstance(bias, Sums):
        of_sums = (of_queries, of_queries, of_keys, of_keys)
        bias = Sums(*(blocks(x, f, mode="edge") for x, f in zip(bias, of_sums, strict=True)))
    elif bias is not None:
        bias = Curve(jnp.pad(bias.line, ((0, 0), (c, of_keys[1] + c))))
    between = region.between
    if between is not None:
        start, end = (blocks(jnp.atleast_2d(bound), of_queries) for bound in between)
        between = start, end
    chunk, chunks = chunk_of(encoding), None
    if chunk is not None:
        chunks = chunks_of(q_tokens, k_tokens, queries, keys, chunk)
    seen = Places(
        documents and places(documents, -1, -2),
        order and places(order, 0, np.iinfo(np.int32).max),  # padding comes last
        chunks and places(chunks, 0, 0),
        between,
    )
    windows = [w for w in (encoding.narrowed(), region.window) if w is not None]
    shape = Shape(
        block=c,
        offset=(keys - queries) // c,
        window=min(windows, default=None),
        chunk=chunk if documents is None else None,
        ordered=order is not None,
        nearest=region.nearest,
        first=region.first if documents is None else None,
    )
    q = q.reshape(len(q), batch, groups, repeats * c, size)
    result: Any = _attention(shape, q, k, v, bias, seen)
    out, logsum = result  # [n, B, G, K, R c] and [n, B, G, R c]
    of_values = v.shape[-1]
    out = out.reshape(len(q), batch, groups, of_values, repeats, c)
    out = jnp.transpose(out, (1, 2, 4, 0, 5, 3)).reshape(batch, heads, len(q) * c, of_values)
    logsum = logsum.reshape(len(q), batch, groups, repeats, c)
    logsum = jnp.transpose(logsum, (1, 2, 3, 0, 4)).reshape(batch, heads, len(q) * c)
    unpadded = slice(front, front + queries)
    return out[:, :, unpadded], logsum[:, :, unpadded]


def _bias(encoding, heads: int, keys: int, q_tokens: Tokens, k_tokens: Tokens) -> Bias:
    biased, mixed = overrides(encoding, "bias"), overrides(encoding, "logits")
    if not biased and not mixed:
        return None
    check_fits(encoding, "heads", heads)
    if not mixed:
        curve = curve_of(encoding, q_tokens, k_tokens)
        if curve is not None:
            return Curve(curve(jnp.arange(keys)).astype(jnp.float32))
        inner = bearer(encoding, "bias")
        if isinstance(inner, KeySum) and type(inner).bias is KeySum.bias:
            (q_sum, q_rest), (k_sum, k_rest) = inner.sums(q_tokens), inner.sums(k_tokens)
            q_rest, k_rest = lax.stop_gradient(q_rest), lax.stop_gradient(k_rest)
            sides = (x if x.ndim == 3 else x[None] for x in (q_sum, q_rest, k_sum, k_rest))
            return Sums(*(x.swapaxes(1, 2).astype(jnp.float32) for x in sides))
    return Called(encoding, q_tokens, k_tokens)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(shape: Shape, q, k, v, bias: Bias, places: Places):
    return _forward(shape, q, k, v, bias, places)


def _forward(shape: Shape, q, k, v, bias, places):
    """Return the output [n, B, G, K, R c] and the log-sum of each query, [n, B, G, R c]."""
    v_turned = v.swapaxes(3, 4)

    def add(state, pairs: Pairs):
        acc, top, total = state
        s = _masked(shape, pairs, places, _logits(shape, pairs, _products(pairs, q, k), bias))
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
    turned = (*q.shape[:3], v.shape[4], q.shape[3])
    state = jnp.broadcast_to(zero, turned), rows + NONE, rows
    acc, top, total = _over_pairs(shape, q, k, bias, places, add, state)
    total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
    return (acc / total[:, :, :, None]).astype(q.dtype), top + jnp.log(total)


class Saved(struct.PyTreeNode):
    """Residuals of the backward pass; `wanted` marks the leaves of the bias to differentiate."""

    arrays: Any
    out: Any
    logsum: Any
    wanted: tuple[bool, ...] = struct.field(pytree_node=False)


def _saved(shape: Shape, *arguments):
    arrays = jax.tree.map(lambda leaf: leaf.value, arguments)
    out, logsum = _forward(shape, *arrays)
    bias = arguments[3]
    wanted = tuple(bool(leaf.perturbed) and _is_real(leaf.value) for leaf in jax.tree.leaves(bias))
    return (out, logsum), Saved(arrays, out, logsum, wanted)


def _backward(shape: Shape, saved: Saved, gradients):
    (q, k, v, bias, places), out, logsum = saved.arrays, saved.out, saved.logsum
    d_out, d_logsum = gradients
    if isinstance(d_out, SymbolicZero):
        d_out = jnp.zeros_like(out)
    delta = jnp.sum(d_out.astype(jnp.float32) * out.astype(jnp.float32), axis=3)
    if not isinstance(d_logsum, SymbolicZero):
        delta = delta - d_logsum
    d_out = d_out.swapaxes(3, 4)
    k_turned = k.swapaxes(3, 4)
    wanted = [x for x, is_wanted in zip(_leaves(bias), saved.wanted, strict=True) if is_wanted]

    def add(state, pairs: Pairs):
        d_q, d_k, d_v, d_wanted = state
        products = _products(pairs, q, k)
        if isinstance(bias, Called):
            parts = _cut(pairs, bias)
            chosen = [x for x, w in zip(_leaves(parts), saved.wanted, strict=True) if w]

            def biased(products, chosen):
                values = iter(chosen)
                leaves = zip(_leaves(parts), saved.wanted, strict=True)
                merged = [next(values) if w else x for x, w in leaves]
                return _called(products, jax.tree.unflatten(jax.tree.structure(parts), merged))

            s, pull = jax.vjp(biased, products, chosen)
        else:
            s, pull = _logits(shape, pairs, products, bias), None
        s = _masked(shape, pairs, places, s)
        p = jnp.exp(s - pairs.queries(logsum)[:, :, :, None])
        d_i = pairs.queries(d_out)
        d_v_j = _product("nbgsq,nbgqk->nbgsk", p.astype(v.dtype), d_i)
        d_p = _product("nbgsk,nbgqk->nbgsq", pairs.keys(v), d_i)
        d_s = p * (d_p - pairs.queries(delta)[:, :, :, None])
        if pull is not None:
            d_s, d_chosen = pull(d_s)
            d_wanted = _add_to_called(pairs, bias, saved.wanted, d_wanted, d_chosen)
        elif isinstance(bias, Curve) and d_wanted:
            d_wanted = [_add_to_line(shape, pairs, d_wanted[0], d_s)]
        elif isinstance(bias, Sums) and d_wanted:
            d_wanted = _add_to_sums(pairs, bias, saved.wanted, d_wanted, d_s)
        d_s = d_s.astype(q.dtype)
        d_q_i = _product("nbgks,nbgsq->nbgkq", pairs.keys(k_turned), d_s)
        d_k_j = _product("nbgsq,nbgqk->nbgsk", d_s, pairs.queries(q))
        return (
            pairs.put_queries(d_q, pairs.queries(d_q) + d_q_i),
            pairs.put_keys(d_k, pairs.keys(d_k) + d_k_j),
            pairs.put_keys(d_v, pairs.keys(d_v) + d_v_j),
            d_wanted,
        )

    zero = _zero(q, k, v, bias, places, d_out)
    zeros = (jnp.broadcast_to(zero, x.shape) for x in (q.swapaxes(3, 4), k, v))
    d_wanted = [jnp.broadcast_to(zero.astype(leaf.dtype), leaf.shape) for leaf in wanted]
    d_q, d_k, d_v, d_wanted = _over_pairs(shape, q, k, bias, places, add, (*zeros, d_wanted))
    summed = iter([_summed(d, x) for d, x in zip(d_wanted, wanted, strict=True)])
    d_bias = [next(summed) if is_wanted else None for is_wanted in saved.wanted]
    d_bias = jax.tree.unflatten(jax.tree.structure(bias), d_bias)
    of_qkv = zip((d_q.swapaxes(3, 4), d_k, d_v), (q, k, v), strict=True)
    return *(_summed(d, x).astype(x.dtype) for d, x in of_qkv), d_bias, None


_attention.defvjp(_saved, _backward, symbolic_zeros=True)


def _over_pairs(shape: Shape, q, k, bias: Bias, places: Places, add, state):
    """Call `add` for every pair of a block of queries and a block of keys visible to it."""
    pairs = [(i, j) for i in range(len(q)) for j in range(len(k)) if _may_see(shape, i, j)]
    free = all(place is None for place in places)
    if len(k) * shape.block > UNROLLED and places.order is not None:
        return _over_seen_pairs(shape, pairs, places, add, state)
    if len(k) * shape.block > UNROLLED:
        whole = {pair for pair in pairs if free and _sees_all(shape, *pair)}
        # Two at once, so that two cores share them evenly whatever the number of heads; a bias
        # would take longer.
        doubled = [(i, j) for i, j in sorted(whole) if j % 2 == 0 and (i + 1, j + 1) in whole]
        doubled = doubled if bias is None else []
        taken = {*doubled, *((i + 1, j + 1) for i, j in doubled)}
        single = sorted(whole - taken)
        masked = [pair for pair in pairs if pair not in whole]
        for rows, count, is_whole in ((masked, 1, False), (single, 1, True), (doubled, 2, True)):

            def step(state, row, count=count, is_whole=is_whole):
                return add(state, Pairs(row[0], row[1], count, is_whole)), None

            if rows:
                state = lax.scan(step, state, np.array(rows, np.int32))[0]
        return state
    for back in sorted({i - j for i, j in pairs}):
        rows = [i for i, j in pairs if i - j == back]
        # Consecutive blocks at one distance are computed at once; chunks leave gaps.
        for _, run in groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
            run = [i for _, i in run]
            whole = free and all(_sees_all(shape, i, i - back) for i in run)
            state = add(state, Pairs(run[0], run[0] - back, len(run), whole))
    return state


def _over_seen_pairs(shape: Shape, pairs, places: Places, add, state):
    """The same where given positions decide at run time which keys are visible."""
    rows = np.array(pairs, np.int32)
    (q_first, q_last), (k_first, k_last) = (
        (side.min(axis=(1, 2))[rows[:, n]], side.max(axis=(1, 2))[rows[:, n]])
        for n, side in enumerate(places.order or ())
    )
    seen, whole = k_first <= q_last, k_last <= q_first
    if shape.window is not None:
        seen &= k_last > q_first - shape.window
    masked = shape.window is not None or shape.nearest or places._replace(order=None) != Places()
    for chosen, is_whole in ((seen, False),) if masked else ((seen & ~whole, False), (whole, True)):
        row = jnp.asarray(rows)[jnp.argsort(~chosen, stable=True)]  # the chosen pairs come first

        def step(n, state, row=row, is_whole=is_whole):
            return add(state, Pairs(row[n, 0], row[n, 1], 1, is_whole))

        state = lax.fori_loop(0, chosen.sum(), step, state)
    return state


def _may_see(shape: Shape, i: int, j: int) -> bool:
    """True if a query of block i may see a key of block j."""
    if shape.ordered:
        return True
    c, first = shape.block, (i + shape.offset) * shape.block  # the first query's index
    far = first - j * c  # the distances are within c - 1 of this
    return (
        far >= 0
        and far + c - 1 >= shape.nearest
        and (shape.window is None or far - (c - 1) < shape.window)
        and (shape.chunk is None or first // shape.chunk * shape.chunk < (j + 1) * c)
        and (shape.first is None or j * c < shape.first)
    )


def _sees_all(shape: Shape, i: int, j: int) -> bool:
    """True if the queries of block i see all keys of block j, by their places in the row alone."""
    c, far = shape.block, (i + shape.offset - j) * shape.block
    return (
        not shape.ordered
        and far - (c - 1) >= shape.nearest
        and (shape.window is None or far + c - 1 < shape.window)
        and shape.chunk is None
        and (shape.first is None or (j + 1) * c <= shape.first)
    )


def _products(pairs: Pairs, q, k):  # [n, B, G, c, R c], float32
    return _product("nbgsk,nbgqk->nbgsq", pairs.keys(k), pairs.queries(q))


def _masked(shape: Shape, pairs: Pairs, places: Places, s):
    """Set the scores of invisible keys to -inf."""
    if pairs.whole:
        return s
    c = shape.block
    if places.order is None:
        place = jnp.arange(c)
        far = (pairs.query + shape.offset - pairs.key) * c
        back = (far + place[None, :] - place[:, None])[None, None]
        seen = back >= shape.nearest
    else:
        back = _against(pairs, places.order, jnp.subtract)
        seen = _against(pairs, places.order, jnp.greater_equal)  # a difference could overflow
        if shape.nearest:
            seen &= back >= shape.nearest
    if shape.window is not None:
        seen &= back < shape.window
    if places.between is not None:
        near, far = (pairs.queries(bound)[:, :, None, :] for bound in places.between)
        seen = seen & (back >= near) & (back <= far)
    for ids in (places.documents, places.chunks):
        if ids is not None:
            seen = seen & _against(pairs, ids, jnp.equal)
    by_head = s.reshape(*s.shape[:4], -1, c)  # [n, B, G, c, R, c]
    return jnp.where(seen[:, :, None, :, None, :], by_head, -jnp.inf).reshape(s.shape)


def _against(pairs: Pairs, values, compare):  # [n, B or 1, c, c], keys by queries
    return compare(pairs.queries(values[0])[:, :, None, :], pairs.keys(values[1])[:, :, :, None])


def _logits(shape: Shape, pairs: Pairs, products, bias: Bias):  # [n, B, G, c, R c]
    """Return the scores with their bias, keys by queries."""
    if bias is None:
        return products
    if isinstance(bias, Called):
        return _called(products, _cut(pairs, bias))
    if isinstance(bias, Curve):
        line = lax.dynamic_slice_in_dim(bias.line, _nearest(shape, pairs), 2 * shape.block, axis=1)
        return _plus(products, _skew(line)[None, None])
    # Subtract the sum of the block's first query from both sides: visible differences are then
    # small, and later tokens cannot change their rounding.
    q_sum, q_rest = pairs.queries(bias.q_sum), pairs.queries(bias.q_rest)
    first, first_rest = q_sum[..., :1], q_rest[..., :1]

    def relative(total, rest):  # and its rounding error
        high, low = two_sum(total, -first)
        return high, low + (rest - first_rest)

    q_high, q_low = relative(q_sum, q_rest)
    k_high, k_low = relative(pairs.keys(bias.k_sum), pairs.keys(bias.k_rest))
    # Compute the differences as a product, large parts first: a broadcast takes three times as
    # long on CPU.
    left = jnp.stack([-k_high, jnp.ones_like(k_high), -k_low, jnp.ones_like(k_low)], -1)
    right = jnp.stack([jnp.ones_like(q_high), q_high, jnp.ones_like(q_low), q_low], -1)
    return _plus(products, jnp.einsum("...sd,...qd->...sq", left, right, precision=HIGHEST))


def _plus(products, block):
    """Add a bias [n or 1, B or 1, H, c, c], keys by queries, to scores of grouped heads."""
    c = block.shape[-1]
    by_head = products.reshape(*products.shape[:4], -1, c)  # [n, B, G, c, R, c]
    groups, repeats = by_head.shape[2], by_head.shape[4]
    block = block.reshape(*block.shape[:2], groups, repeats, c, c)
    return (by_head + block.swapaxes(3, 4)).reshape(products.shape)


def _cut(pairs: Pairs, bias: Called) -> Called:
    """Select the tokens of the blocks."""
    return Called(
        bias.encoding,
        jax.tree.map(pairs.queries, bias.q_tokens),
        jax.tree.map(pairs.keys, bias.k_tokens),
    )


def _called(products, called: Called):  # [n, B, G, c, R c]
    """Combine scores and bias by the encoding's `logits`."""
    encoding: Encoding = called.encoding
    bias: Any = jax.vmap(encoding.bias)(called.q_tokens, called.k_tokens)  # [n, H, c, c] or with B
    if not overrides(encoding, "logits"):
        block = bias.astype(products.dtype).swapaxes(-1, -2)
        return _plus(products, block if block.ndim == 5 else block[:, None])
    n, batch, groups, c = products.shape[:4]
    by_head = products.reshape(n, batch, groups, c, -1, c)
    scores = jnp.transpose(by_head, (0, 1, 2, 4, 5, 3)).reshape(n, batch, -1, c, c)
    scores = jax.vmap(encoding.logits)(scores, bias).reshape(n, batch, groups, -1, c, c)
    scores = jnp.transpose(scores, (0, 1, 2, 5, 3, 4)).reshape(products.shape)
    return scores.astype(products.dtype)


def _nearest(shape: Shape, pairs: Pairs):
    """Return the index in the padded curve at which the distances of these blocks start."""
    return (pairs.query + shape.offset - pairs.key) * shape.block + 1


def _skew(line):  # [H, 2c] -> [H, c, c], where [s, q] is line[c - 1 + q - s]
    heads, double = line.shape
    c = double // 2
    rows = jnp.broadcast_to(line[:, None], (heads, c, double)).reshape(heads, -1)
    return rows[:, : c * (double - 1)].reshape(heads, c, double - 1)[:, :, c - 1 :]


def _by_head(c: int, d_scores):  # [n, B, H, c, c], keys by queries
    block = d_scores.reshape(*d_scores.shape[:4], -1, c).swapaxes(3, 4)  # [n, B, G, R, c, c]
    return block.reshape(*block.shape[:2], -1, c, c)


def _add_to_line(shape: Shape, pairs: Pairs, d_line, d_scores):
    block = _by_head(shape.block, d_scores).sum(axis=(0, 1))
    (line,) = jax.linear_transpose(
        _skew, jnp.zeros_like(block, shape=(len(block), 2 * shape.block))
    )(block)
    start = _nearest(shape, pairs)
    line += lax.dynamic_slice_in_dim(d_line, start, 2 * shape.block, axis=1)
    return lax.dynamic_update_slice_in_dim(d_line, line, start, axis=1)


def _add_to_sums(pairs: Pairs, bias: Sums, wanted, d_wanted: list, d_scores):
    """Add the gradients of both sides: a query's sum shifts all its scores alike, but in bfloat16
    their gradients do not add up to zero, and the residue must not reach the gates between."""
    by_head = _by_head(bias.k_sum.shape[-1], d_scores)  # [n, B, H, keys, queries]

    def summed(axis, like):
        total = by_head.sum(axis=axis)
        return total.sum(axis=1, keepdims=True) if like.shape[1] == 1 else total

    of_queries, *_ = d_wanted
    *_, of_keys = d_wanted
    added = []
    if wanted[0]:
        d = summed(-2, of_queries)
        added.append(pairs.put_queries(of_queries, pairs.queries(of_queries) + d))
    if wanted[2]:
        added.append(pairs.put_keys(of_keys, pairs.keys(of_keys) - summed(-1, of_keys)))
    return added


def _add_to_called(pairs: Pairs, bias: Called, wanted, d_wanted: list, d_chosen: list):
    """Add gradients of the encoding's arrays, common to all blocks, and of the blocks' tokens."""
    shared, of_queries, of_keys = (len(jax.tree.leaves(part)) for part in bias)
    kinds = ["shared"] * shared + ["queries"] * of_queries + ["keys"] * of_keys
    kinds = [kind for kind, is_wanted in zip(kinds, wanted, strict=True) if is_wanted]
    added = []
    for kind, total, d in zip(kinds, d_wanted, d_chosen, strict=True):
        if kind == "shared":
            added.append(total + d)
        elif kind == "queries":
            added.append(pairs.put_queries(total, pairs.queries(total) + d))
        else:
            added.append(pairs.put_keys(total, pairs.keys(total) + d))
    return added


def _leaves(bias: Bias) -> list:
    return jax.tree.leaves(bias)


def _is_real(leaf) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _zero(*trees) -> jax.Array:
    """Return a zero that varies over the devices of a shard_map as the arrays together do."""
    leaves = jax.tree.leaves(trees)
    return sum(
        (jnp.zeros_like(x, jnp.float32, shape=()) for x in leaves), jnp.zeros((), jnp.float32)
    )


def _summed(gradient: jax.Array, primal: jax.Array) -> jax.Array:
    """Sum a gradient over the devices of a shard_map that share its primal."""
    axes = tuple(_varying(gradient) - _varying(primal))
    return lax.psum(gradient, axes) if axes else gradient


def _varying(x: jax.Array) -> frozenset:
    """Return the axes of a shard_map along which an array varies; older jax calls this vma."""
    kind = jax.typeof(x)
    axes = getattr(kind, "manual_axis_type", None)
    return getattr(kind, "vma", frozenset()) if axes is None else axes.varying


def _product(names: str, a, b):
    return jnp.einsum(names, a, b, precision=HIGHEST, preferred_element_type=jnp.float32)
