"""Attention in which every key takes a share of what later keys leave."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posenc_jax.attention import ring
from posenc_jax.attention.plain import documents_of, order_of
from posenc_jax.attention.sharpest import blocks
from posenc_jax.checks import flag
from posenc_jax.encoding import Dims, Encoding, Tokens, static
from posenc_jax.schemes._rows import ascending

BLOCK = 128  # queries or keys
UNSEEN = np.iinfo(np.int32).max  # the order of a key after every query


class StickBreaking(Encoding):
    """Tan et al. 2024, arXiv:2410.17980: the weight of a key is sigmoid(z), times 1 - sigmoid(z) of
    all keys between it and the query, where z = q . k / sqrt(K).

    So near keys come first, and there is no other position. A query sees the keys before it, and
    with `attend_current` its own. The weights add up to at most 1; with `remainder`, what is left
    goes to the query's own value. Logarithms are float32.
    """

    attends_across_devices = True

    attend_current: bool = static(default=False)
    remainder: bool = static(default=False)

    def attend(self, q, k, v, q_tokens, k_tokens):
        k, v, k_tokens = ascending(k, v, k_tokens, self.window)

        def add(state, keys):  # which come before those of the state
            out, left = state
            k, v, k_tokens = keys
            more, rest = self._of_keys(q, k, v, k_tokens, q_tokens)
            return out + jnp.exp(left)[..., None] * more, left + rest

        if k_tokens.axis is None:
            out, left = self._of_keys(q, k, v, k_tokens, q_tokens)
        else:
            nothing = jnp.zeros((*q.shape[:3], v.shape[3])), jnp.zeros(q.shape[:3])
            out, left = ring.around(k_tokens.axis, (k, v, k_tokens), nothing, add)
        if self.remainder:
            own = _own(v, q_tokens, k_tokens, q.shape[2])
            out = out + jnp.exp(left)[..., None] * jnp.repeat(own, q.shape[1] // k.shape[1], 1)
        return out.astype(q.dtype)

    def _of_keys(self, q, k, v, k_tokens: Tokens, q_tokens: Tokens) -> tuple[jax.Array, jax.Array]:
        """Return the output [B, H, Q, K], and the log of what is left, [B, H, Q], in float32."""
        batch, heads, queries, size = q.shape
        groups, keys = k.shape[1:3]
        order, documents = order_of(q_tokens, k_tokens), documents_of(q_tokens, k_tokens)
        first = keys - queries if order is None else None
        if order is None:
            order = jnp.arange(keys - queries, keys), jnp.arange(keys)
        shape = Shape(first, self.window, nearest=0 if self.attend_current else 1)
        of_queries = functools.partial(blocks, size=min(BLOCK, queries))
        of_keys = functools.partial(blocks, size=min(BLOCK, keys))
        q_order, k_order = map(jnp.atleast_2d, order)
        places = Places(of_queries(q_order, 1), of_keys(k_order, 1, fill=UNSEEN))
        if documents is not None:
            q_document, k_document = map(jnp.atleast_2d, documents)
            places = Places(*places[:2], of_queries(q_document, 1), of_keys(k_document, 1))
        q = of_queries(q.reshape(batch, groups, -1, queries, size), 3)
        result: Any = _attention(shape, q, of_keys(k, 2), of_keys(v, 2), places)
        out, left = result
        out = jnp.moveaxis(out, 0, 3).reshape(batch, heads, -1, v.shape[-1])[:, :, :queries]
        return out, jnp.moveaxis(left, 0, 3).reshape(batch, heads, -1)[:, :, :queries]


class Shape(NamedTuple):
    """Static properties that the program is compiled for."""

    first: int | None  # index in the row of the first query; None: given orders decide
    window: int | None
    nearest: int  # least number of tokens back


class Places(NamedTuple):
    """Order and document of queries and keys in blocks, [n, B or 1, c]."""

    q_order: Any
    k_order: Any
    q_document: Any = None
    k_document: Any = None


def _own(v, q_tokens: Tokens, k_tokens: Tokens, queries: int):  # [B, G, Q, K]
    """Return the values of the queries' own tokens; zeros where they are not among the keys."""
    order, documents = order_of(q_tokens, k_tokens), documents_of(q_tokens, k_tokens)
    if order is None or k_tokens.axis is not None:
        return v[:, :, v.shape[2] - queries :]
    same = jnp.equal(*_against(order))
    if documents is not None:
        same = same & jnp.equal(*_against(documents))
    same = jnp.broadcast_to(same, (len(v), *same.shape[1:]))
    return _product("bqs,bgsv->bgqv", same.astype(v.dtype), v)


def _against(pair):  # [B or 1, Q, 1] and [B or 1, 1, S]
    of_queries, of_keys = map(jnp.atleast_2d, pair)
    return of_queries[:, :, None], of_keys[:, None, :]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(shape: Shape, q, k, v, places: Places):
    """Return the output [n, B, G, R, c, K], and the log of what is left, [n, B, G, R, c].

    Queries are [n, B, G, R, c, K], where R heads share their keys. Memory is linear in the length,
    but for one number per query and block of keys.
    """
    return _forward(shape, q, k, v, places)[0]


def _forward(shape: Shape, q, k, v, places: Places):
    """Visit the keys of each block of queries from the last to the first."""

    def step(state, pair):
        out, left = state
        i, j = pair
        takes, leaves, seen = _logs(shape, _at(q, i), _at(k, j), _pair(places, i, j))
        before = _at(left, i)
        weights = _weights(takes, leaves, seen, before)
        added = _product("bgrqs,bgsv->bgrqv", weights.astype(v.dtype), _at(v, j))
        return (_add(out, i, added), _add(left, i, leaves.sum(-1))), before

    zero = jnp.zeros_like(q, jnp.float32, shape=())
    out = jnp.broadcast_to(zero, (*q.shape[:5], v.shape[-1]))
    left = jnp.broadcast_to(zero, q.shape[:5])
    results, before = lax.scan(step, (out, left), _pairs(shape, q, k))
    return results, (q, k, v, places, before)


def _backward(shape: Shape, saved, gradients):
    """Visit them in reverse. With h = weight times its gradient, the gradient of a score z is h
    less sigmoid(z) times the sum of h over this and earlier keys, whose weights z diminishes."""
    q, k, v, places, before = saved
    d_out, d_left = gradients
    scale = q.shape[-1] ** -0.5

    def step(state, inputs):
        d_q, d_k, d_v, earlier = state
        (i, j), before = inputs
        takes, leaves, seen = _logs(shape, _at(q, i), _at(k, j), _pair(places, i, j))
        weights = _weights(takes, leaves, seen, before)
        d_i = _at(d_out, i).astype(v.dtype)
        h = weights * _product("bgrqv,bgsv->bgrqs", d_i, _at(v, j))
        up_to = np.tri(h.shape[-1], dtype=np.float32).T  # [t, s]: 1 if t is s or before it
        sums = _product("bgrqt,ts->bgrqs", h, up_to) + _at(earlier, i)[..., None]
        d_z = jnp.where(seen, h - jnp.exp(takes) * sums, 0.0)
        d_z = (d_z * scale).astype(q.dtype)
        return (
            _add(d_q, i, _product("bgrqs,bgsk->bgrqk", d_z, _at(k, j))),
            _add(d_k, j, _product("bgrqs,bgrqk->bgsk", d_z, _at(q, i))),
            _add(d_v, j, _product("bgrqs,bgrqv->bgsv", weights.astype(v.dtype), d_i)),
            _add(earlier, i, h.sum(-1)),
        ), None

    zeros = (jnp.zeros_like(x, jnp.float32) for x in (q, k, v))
    state = (*zeros, d_left)
    (d_q, d_k, d_v, _), _ = lax.scan(step, state, (_pairs(shape, q, k), before), reverse=True)
    return d_q.astype(q.dtype), d_k.astype(k.dtype), d_v.astype(v.dtype), None


_attention.defvjp(_forward, _backward)


def _pairs(shape: Shape, q, k) -> np.ndarray:  # [pairs, 2]
    """List the blocks of queries, each with the blocks of keys that it may see, the last first."""
    of_queries, of_keys = q.shape[4], k.shape[3]

    def may_see(i: int, j: int) -> bool:
        if shape.first is None:
            return True
        first = shape.first + i * of_queries
        near = j * of_keys <= first + of_queries - 1 - shape.nearest
        return near and (shape.window is None or (j + 1) * of_keys > first - shape.window + 1)

    pairs = [(i, j) for i in range(len(q)) for j in reversed(range(len(k))) if may_see(i, j)]
    return np.array(pairs, np.int32).reshape(-1, 2)


def _pair(places: Places, i, j) -> Places:
    """Select the places of a block of queries and a block of keys."""
    q_order, k_order, q_document, k_document = places
    documents = () if q_document is None else (_at(q_document, i), _at(k_document, j))
    return Places(_at(q_order, i), _at(k_order, j), *documents)


def _at(x, block):
    return lax.dynamic_index_in_dim(x, block, keepdims=False)


def _add(x, block, part):
    return lax.dynamic_update_index_in_dim(x, _at(x, block) + part, block, 0)


def _logs(shape: Shape, q, k, places: Places):  # [B, G, R, c, c] three times
    """Return log sigmoid(z); log(1 - sigmoid(z)), 0 of invisible keys; and the mask of visible
    ones, for queries [B, G, R, c, K] and keys [B, G, c, K]."""
    q_order, k_order = places.q_order[:, :, None], places.k_order[:, None, :]
    seen = k_order <= q_order - shape.nearest  # a difference could overflow
    if shape.window is not None:
        seen &= q_order - k_order < shape.window
    if places.q_document is not None:
        seen &= places.q_document[:, :, None] == places.k_document[:, None, :]
    seen = seen[:, None, None]
    z = _product("bgrqk,bgsk->bgrqs", q, k) * q.shape[-1] ** -0.5
    rest = jnp.log1p(jnp.exp(-jnp.abs(z)))
    return jnp.minimum(z, 0) - rest, jnp.where(seen, -jnp.maximum(z, 0) - rest, 0.0), seen


def _weights(takes, leaves, seen, before):
    """Return the weights, where `before` is the log of what keys of later blocks leave."""
    later = np.tri(leaves.shape[-1], k=-1, dtype=np.float32)  # [t, s]: 1 if t comes after s
    logs = takes + _product("bgrqt,ts->bgrqs", leaves, later) + before[..., None]
    return jnp.where(seen, jnp.exp(logs), 0.0)


def _product(names: str, a, b):
    return jnp.einsum(names, a, b, precision="highest", preferred_element_type=jnp.float32)


def build(dims: Dims, *, attend_current: bool = False, remainder: bool = False) -> StickBreaking:
    return StickBreaking(
        dims=dims,
        attend_current=flag("attend_current", attend_current),
        remainder=flag("remainder", remainder),
    )
