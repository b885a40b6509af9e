"""The reference implementation of attention, with all scores in float32."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.attention.regions import NONE
from posenc_jax.encoding import DistanceBias, Encoding, Phase, Region, Tokens
from posenc_jax.layers import bearer, chunk_of, overrides, topk_of

_HIGHEST = jax.lax.Precision.HIGHEST
WHOLE = Region()  # all keys at their own positions


def plain(
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K], or another size than keys have
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None = None,
    region: Region = WHOLE,
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K] of the values, and [B, H, Q]
    """Return softmax(scale * q . k / sqrt(K) + bias) v over visible keys, and its log-sum.

    A query sees keys up to its own `order`; without one, tokens follow the row and the queries are
    the last Q keys. A query that sees no key gets zeros. Only keys of the region are visible, and
    the phase is the region's.
    """
    given = (q, k, v, encoding, q_tokens, k_tokens)
    scores, seen, v = logits_of(*given, phase=phase, region=region)
    out, logsum = softmax(scores, seen, v, topk_of(encoding))
    return out.astype(q.dtype), logsum


def logits_of(
    q, k, v, encoding: Encoding, q_tokens: Tokens, k_tokens: Tokens, *, phase, region: Region
) -> tuple[jax.Array, jax.Array, jax.Array]:  # [B, H, Q, S], [B or 1, 1, Q, S] and v
    """Return the logits, whether each key is visible, and the values of the keys."""
    q, k, v = turn(q, k, v, encoding, phase)
    batch, heads, queries, size = q.shape
    groups, keys = k.shape[1:3]
    # Heads that share keys are one product: for a single query 1.5 times as fast on CPU.
    grouped = q.reshape(batch, groups, -1, size)
    scores = jnp.einsum(
        "bgqk,bgsk->bgqs", grouped, k, precision=_HIGHEST, preferred_element_type=jnp.float32
    ).reshape(batch, heads, queries, keys)
    scores = scores / size**0.5
    scale = query_scale(encoding, q_tokens, k_tokens, queries, keys)
    if scale is not None:
        scores = scores * scale
    if overrides(encoding, "bias") or overrides(encoding, "logits"):
        check_fits(encoding, "heads", heads)
        moved = region.moved(q_tokens, region.q_position), region.moved(k_tokens, region.k_position)
        scores = encoding.logits(scores, bias_of(encoding, *moved, queries, keys))

    limit, chunk = encoding.narrowed(), chunk_of(encoding)
    seen = visible(q_tokens, k_tokens, queries, keys, limit, chunk, region)
    return scores, seen, v


def softmax(
    scores: jax.Array,  # [B, H, Q, S]
    seen: jax.Array,  # [B or 1, 1, Q, S]
    v: jax.Array,  # [B, G, S, K]
    topk: int | None = None,  # keys of the highest logits, and those of equal logits
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K], and the log-sum [B, H, Q]
    batch, heads, queries, keys = scores.shape
    groups = v.shape[1]
    scores = jnp.where(seen, scores, jnp.finfo(jnp.float32).min)
    if topk is not None and topk < keys:
        seen = seen & (scores >= kth_largest(scores, topk)[..., None])
        scores = jnp.where(seen, scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1)
    weights = jnp.where(seen, weights, 0.0).astype(v.dtype)
    out = jnp.einsum(
        "bgqs,bgsk->bgqk",
        weights.reshape(batch, groups, -1, keys),
        v,
        precision=_HIGHEST,
        preferred_element_type=jnp.float32,
    )
    logsum = jnp.maximum(jax.nn.logsumexp(scores, axis=-1), NONE)
    return out.reshape(batch, heads, queries, -1), logsum


def kth_largest(scores: jax.Array, k: int) -> jax.Array:  # [..., S] -> [...]
    """The k-th largest of each row, bit by bit from the highest; `top_k` of whole rows takes 7 to
    13 times as long on a Xeon."""
    scores, size = jax.lax.stop_gradient(scores), math.isqrt(scores.shape[-1] // k)
    if size >= 8:  # of blocks; the k with the highest maxima have the k largest
        fill = [(0, 0)] * (scores.ndim - 1) + [(0, -scores.shape[-1] % size)]
        padded = jnp.pad(scores, fill, constant_values=-jnp.inf)
        blocks = padded.reshape(*scores.shape[:-1], -1, size)
        _, highest = jax.lax.top_k(blocks.max(axis=-1), k)
        scores = jnp.take_along_axis(blocks, highest[..., None], axis=-2)
        scores = scores.reshape(*scores.shape[:-2], -1)

    def turned(bits):  # float32 in its own order as int32, and back
        return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)

    top = jnp.uint32(1 << 31)
    bits = jax.lax.bitcast_convert_type(scores, jnp.int32)
    keys = jax.lax.bitcast_convert_type(turned(bits), jnp.uint32) ^ top

    def decide(n, found):
        larger = found | (top >> n.astype(jnp.uint32))
        enough = (keys >= larger[..., None]).sum(axis=-1) >= k
        return jnp.where(enough, larger, found)

    found = jax.lax.fori_loop(0, 32, decide, jnp.zeros(scores.shape[:-1], jnp.uint32))
    found = turned(jax.lax.bitcast_convert_type(found ^ top, jnp.int32))
    return jax.lax.bitcast_convert_type(found, jnp.float32)


def bias_of(encoding, q_tokens: Tokens, k_tokens: Tokens, queries: int, keys: int):
    curve = curve_of(encoding, q_tokens, k_tokens)
    if curve is None:
        return encoding.bias(q_tokens, k_tokens)
    return spread(curve(jnp.arange(keys)), queries)


def curve_of(encoding: Encoding, q_tokens: Tokens, k_tokens: Tokens):
    """Return the function of the distance that determines the bias, if there is one."""
    encoding = bearer(encoding, "bias")
    if not isinstance(encoding, DistanceBias) or type(encoding).bias is not DistanceBias.bias:
        return None
    return encoding.curve if q_tokens.contiguous and k_tokens.contiguous else None


def query_scale(
    encoding: Encoding, q_tokens: Tokens, k_tokens: Tokens, queries: int, keys: int
):  # [B or 1, H or 1, Q, 1]
    """Return the factor on the scores of each query; None: no factor."""
    positions = q_tokens.position
    if encoding.scales_by_place:
        positions, _ = places_of(q_tokens, k_tokens, queries, keys)
    scale = encoding.query_scale(positions)
    if scale is None:
        return None
    by_head = scale if scale.ndim == 3 else jnp.atleast_2d(scale)[:, None]
    return by_head[..., None]


def ready(q, k, v, encoding: Encoding, q_tokens: Tokens, k_tokens: Tokens, phase: Phase | None):
    """Rotate queries and keys, and scale the queries."""
    q, k, v = turn(q, k, v, encoding, phase)
    scale = query_scale(encoding, q_tokens, k_tokens, q.shape[2], k.shape[2])
    return (q if scale is None else (q * scale).astype(q.dtype)), k, v


def turn(q, k, v, encoding: Encoding, phase: Phase | None):
    """Rotate queries and keys by their phase; repeat keys and values if heads differ in it."""
    if phase is None:
        return q, k, v
    if phase.k_cos.shape[1] > 1:  # heads rotate differently, so they cannot share keys
        repeats = q.shape[1] // k.shape[1]
        k, v = jnp.repeat(k, repeats, axis=1), jnp.repeat(v, repeats, axis=1)
    tables = (phase.q_cos, phase.q_sin, phase.k_cos, phase.k_sin)
    q_cos, q_sin, k_cos, k_sin = map(materialise_once, tables)
    q = rotate(q, q_cos, q_sin, phase.layout)
    k = rotate(k, k_cos, k_sin, phase.layout)
    return q, k, v


def materialise_once(table: jax.Array) -> jax.Array:
    """Materialise a table once, by a product with the identity, which XLA does not fuse.

    XLA on CPU fuses the computation of a table into all its readers, so that every head of every
    row recomputes the sines of every position (a quarter of a training step). XLA drops
    lax.optimization_barrier too early to prevent it.
    """
    identity = jnp.eye(table.shape[-1], dtype=table.dtype)
    return jnp.matmul(table, identity, precision=_HIGHEST)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array, layout: str) -> jax.Array:
    """Rotate the first R of the K entries of every head in float32; the rest are unchanged."""
    pairs = cos.shape[-1]
    size = pairs if layout == "polar" else 2 * pairs
    turned, rest = x[..., :size].astype(jnp.float32), x[..., size:]
    if layout == "polar":
        length = jax.nn.softplus(turned)
        turned = jnp.concatenate([length * cos, length * sin], axis=-1)
    elif layout == "half":
        a, b = turned[..., :pairs], turned[..., pairs:]
        turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(turned.shape)
    return jnp.concatenate([turned.astype(x.dtype), rest], axis=-1)


def visible(
    q_tokens: Tokens,
    k_tokens: Tokens,
    queries: int,
    keys: int,
    window: int | None,
    chunk: int | None,
    region: Region = WHOLE,
) -> jax.Array:  # [B or 1, 1, Q, S]
    """Mask of the keys of a region that a query may see."""
    order = order_of(q_tokens, k_tokens)
    if order is None:
        order = jnp.arange(keys - queries, keys), jnp.arange(keys)
    q_order, k_order = (jnp.atleast_2d(o) for o in order)
    back = q_order[:, :, None] - k_order[:, None, :]
    seen = region.holds(back)  # later keys are in no region
    if window is not None:
        seen &= back < window
    id_pairs = [documents_of(q_tokens, k_tokens)]
    if chunk is not None:
        id_pairs.append(chunks_of(q_tokens, k_tokens, queries, keys, chunk))
    for pair in id_pairs:
        if pair is not None:
            of_queries, of_keys = (jnp.atleast_2d(ids) for ids in pair)
            seen = seen & (of_queries[:, :, None] == of_keys[:, None, :])
    return seen[:, None]


def places_of(q_tokens: Tokens, k_tokens: Tokens, queries: int, keys: int):  # [T] or [B, T], twice
    """Return the indices of queries and keys in their documents, or their given order."""
    order = order_of(q_tokens, k_tokens)
    if order is not None:
        return order
    if q_tokens.contiguous and k_tokens.contiguous:
        return q_tokens.position, k_tokens.position
    of_queries, of_keys = jnp.arange(keys - queries, keys), jnp.arange(keys)
    documents = documents_of(q_tokens, k_tokens)
    if documents is None:
        return of_queries, of_keys
    first = jax.vmap(jnp.searchsorted)  # documents are numbered in ascending order
    q_first, k_first = (first(documents[1], ids) for ids in documents)
    return of_queries[None, :] - q_first, of_keys[None, :] - k_first


def chunks_of(q_tokens: Tokens, k_tokens: Tokens, queries: int, keys: int, chunk: int):
    """Return chunk numbers in the document, [T] or [B, T], of queries and keys."""
    of_queries, of_keys = places_of(q_tokens, k_tokens, queries, keys)
    return of_queries // chunk, of_keys // chunk


def part(tokens: Tokens, first: int, end: int) -> Tokens:
    """Some tokens of a row."""
    return tokens.replace(
        position=tokens.position[..., first:end],
        order=None if tokens.order is None else tokens.order[..., first:end],
        document=None if tokens.document is None else tokens.document[:, first:end],
        features=jax.tree.map(lambda x: x[:, first:end], tokens.features),
    )


def order_of(q_tokens: Tokens, k_tokens: Tokens) -> tuple[jax.Array, jax.Array] | None:
    return _both("order", q_tokens.order, k_tokens.order)


def documents_of(q_tokens: Tokens, k_tokens: Tokens) -> tuple[jax.Array, jax.Array] | None:
    return _both("document", q_tokens.document, k_tokens.document)


def _both(name: str, of_queries: Any, of_keys: Any) -> tuple[jax.Array, jax.Array] | None:
    if (of_queries is None) != (of_keys is None):
        raise ValueError(f"{name!r} must be given for queries and keys, or for neither")
    return None if of_queries is None else (of_queries, of_keys)


def spread(curve: jax.Array, queries: int) -> jax.Array:  # [H, S] -> [H, Q, S]
    """Expand a bias by distance for the last `queries` of S contiguous tokens, without a gather.

    Row q is the reversed curve shifted left by one against row q - 1: the repeated curve is cut
    into rows that are one shorter than itself.
    """
    heads, keys = curve.shape
    line = jnp.pad(curve[:, ::-1], ((0, 0), (0, queries)))  # distances S-1 .. 0, then future keys
    length = keys + queries
    rows = jnp.broadcast_to(line[:, None, :], (heads, queries, length)).reshape(heads, -1)
    skewed = rows[:, : queries * (length - 1)].reshape(heads, queries, length - 1)
    return skewed[:, :, queries - 1 :]


def check_fits(encoding: Encoding, name: str, size: int):
    built = getattr(encoding.dims, name)
    if built != size:
        raise ValueError(
            f"encoding {encoding.name!r} was built for {name}={built}, attention has {name}={size}"
        )
