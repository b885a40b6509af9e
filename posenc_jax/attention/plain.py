"""The plain reference: the whole matrix of scores, in float32. All else must agree with it."""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import DistanceBias, Encoding, Phase

_HIGHEST = jax.lax.Precision.HIGHEST


def plain(
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K]
    encoding: Encoding,
    *,
    phase: Phase | None,
    q_positions: jax.Array,  # [Q] or [B, Q]
    k_positions: jax.Array,  # [S] or [B, S]
    contiguous: bool = False,  # tokens of a document stand side by side; queries are the last Q
    order: tuple[jax.Array, jax.Array] | None = None,  # [Q] or [B, Q], and [S] or [B, S]
    segments: tuple[jax.Array, jax.Array] | None = None,  # [B, Q] and [B, S]
    window: int | None = None,
) -> jax.Array:  # [B, H, Q, K]
    """softmax(scale * q . k / sqrt(K) + bias) v over the keys a query may see.

    Those are no later in order; without one, tokens come as they stand and the queries are the last
    Q. A query that sees no key at all gets zeros.
    """
    q, k, v = turn(q, k, v, encoding, phase)
    batch, heads, queries, size = q.shape
    groups, keys = k.shape[1:3]
    grouped = q.reshape(batch, groups, heads // groups, queries, size)
    scores = jnp.einsum(
        "bgrqk,bgsk->bgrqs", grouped, k, precision=_HIGHEST, preferred_element_type=jnp.float32
    ).reshape(batch, heads, queries, keys)
    scores = scores / size**0.5
    scale = encoding.query_scale(q_positions)
    if scale is not None:
        scores = scores * jnp.atleast_2d(scale)[:, None, :, None]
    if contiguous and isinstance(encoding, DistanceBias):
        check_fits(encoding, "heads", heads)
        scores = scores + spread(encoding.curve(jnp.arange(keys)), queries)[None]
    else:
        bias = encoding.bias(q_positions, k_positions)
        if bias is not None:
            check_fits(encoding, "heads", heads)
            scores = scores + (bias if bias.ndim == 4 else bias[None])

    if order is None:
        order = jnp.arange(keys - queries, keys), jnp.arange(keys)
    seen = visible(*order, segments, window)
    weights = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(jnp.float32).min), axis=-1)
    weights = jnp.where(seen, weights, 0.0).astype(v.dtype)
    out = jnp.einsum(
        "bgrqs,bgsk->bgrqk",
        weights.reshape(batch, groups, heads // groups, queries, keys),
        v,
        precision=_HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return out.reshape(batch, heads, queries, -1).astype(q.dtype)


def turn(q, k, v, encoding: Encoding, phase: Phase | None):
    """Queries and keys turned by their phase; keys and values by head where heads differ in it."""
    if phase is None:
        return q, k, v
    check_fits(encoding, "head_dim", q.shape[-1])
    if phase.k_cos.shape[1] > 1:  # every head turns its own way, so keys are no longer shared
        repeats = q.shape[1] // k.shape[1]
        k, v = jnp.repeat(k, repeats, axis=1), jnp.repeat(v, repeats, axis=1)
    tables = (phase.q_cos, phase.q_sin, phase.k_cos, phase.k_sin)
    q_cos, q_sin, k_cos, k_sin = map(made, tables)
    q = rotate(q, q_cos, q_sin, phase.layout)
    k = rotate(k, k_cos, k_sin, phase.layout)
    return q, k, v


def made(table: jax.Array) -> jax.Array:
    """The same numbers, made once.

    XLA on CPU fuses what makes a table into all that reads it, so that every head of every row
    computes the sines of every position again (a quarter of a training step). A product is not
    fused, and one with the identity changes nothing; XLA drops lax.optimization_barrier too early.
    """
    identity = jnp.eye(table.shape[-1], dtype=table.dtype)
    return jnp.matmul(table, identity, precision=_HIGHEST)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array, layout: str) -> jax.Array:
    """Turns the first R of the K entries of every head, in float32; the others pass."""
    pairs = cos.shape[-1]
    turned, rest = x[..., : 2 * pairs].astype(jnp.float32), x[..., 2 * pairs :]
    if layout == "half":
        a, b = turned[..., :pairs], turned[..., pairs:]
        turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(turned.shape)
    return jnp.concatenate([turned.astype(x.dtype), rest], axis=-1)


def visible(q_order, k_order, segments, window):  # -> [B or 1, 1, Q, S]
    q_order, k_order = (jnp.atleast_2d(o) for o in (q_order, k_order))
    back = q_order[:, None, :, None] - k_order[:, None, None, :]  # how far back a key is
    seen = back >= 0
    if window is not None:
        seen &= back < window
    if segments is not None:
        q_segments, k_segments = segments
        seen = seen & (q_segments[:, None, :, None] == k_segments[:, None, None, :])
    return seen


def spread(curve: jax.Array, queries: int) -> jax.Array:  # [H, S] -> [H, Q, S]
    """A bias by distance laid out for the last `queries` of S contiguous tokens, without a gather.

    Row q reads the reversed curve one place further left than row q - 1: cutting a repeated vector
    into rows one shorter than itself does that.
    """
    heads, keys = curve.shape
    line = jnp.pad(curve[:, ::-1], ((0, 0), (0, queries)))  # distances S-1 .. 0, then the future
    length = keys + queries
    rows = jnp.broadcast_to(line[:, None, :], (heads, queries, length)).reshape(heads, -1)
    skewed = rows[:, : queries * (length - 1)].reshape(heads, queries, length - 1)
    return skewed[:, :, queries - 1 :]


def has_bias(encoding: Encoding) -> bool:
    one = jnp.zeros(1, jnp.int32)
    return jax.eval_shape(encoding.bias, one, one) is not None


def check_fits(encoding: Encoding, name: str, here: int):
    built = getattr(encoding.dims, name)
    if built != here:
        raise ValueError(
            f"encoding {encoding.name!r} was built for {name}={built}, attention has {name}={here}"
        )
