"""Attention under any encoding; rotation, bias and query scale are applied inside."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention.blockwise import blockwise
from posenc_jax.attention.kernels import kernel, kernel_if_fit
from posenc_jax.attention.merging import merge, with_sink
from posenc_jax.attention.plain import plain, rotate
from posenc_jax.attention.regions import by_regions, phase_between
from posenc_jax.checks import IMPLEMENTATIONS, choice, token_count
from posenc_jax.encoding import Encoding, Phase, Tokens, bearer, check_encoding, overrides
from posenc_jax.positions import (
    check_ascending,
    check_places,
    check_segments,
    check_told_apart,
    number_documents,
    number_documents_of_both,
    place,
)

__all__ = [
    "IMPLEMENTATIONS",
    "attend",
    "attention",
    "blockwise",
    "merge",
    "phase_between",
    "plain",
    "rotate",
]

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float64)
CROSSOVER = 64  # keys from which blockwise trains faster than plain, on CPU


def attention(
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K]
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None = None,
    window: int | None = None,
    implementation: str = "auto",
) -> jax.Array:  # [B, H, Q, K]
    """The heads-major core: `plain`, or a faster implementation with the same arguments."""
    choice("implementation", implementation, IMPLEMENTATIONS)
    own = bearer(encoding, "attend")
    if own.attend is not None:
        own = own.replace(window=encoding.narrowed(window))
        return own.attend(q, k, v, q_tokens, k_tokens)
    given: Any = (q, k, v, encoding, q_tokens, k_tokens)
    if implementation == "kernel":
        return kernel(*given, phase=phase, window=window)
    if implementation == "auto":
        out = kernel_if_fit(*given, phase=phase, window=window)
        if out is not None:
            return out
        implementation = "blockwise" if k.shape[2] >= CROSSOVER else "plain"
    way = {"plain": plain, "blockwise": blockwise}[implementation]
    if overrides(encoding, "regions"):
        way = functools.partial(by_regions, way)
    out, logsum = way(*given, phase=phase, window=window)
    return with_sink(out, logsum, encoding.sink())


def attend(
    q: jax.Array,  # [B, Q, H, K]
    k: jax.Array,  # [B, S, G, K]
    v: jax.Array,  # [B, S, G, K]
    encoding: Encoding,
    *,
    q_positions: jax.Array | None = None,  # [Q] or [B, Q]
    k_positions: jax.Array | None = None,  # [S] or [B, S]
    phase: Phase | None = None,
    segments: jax.Array | tuple[jax.Array, jax.Array] | None = None,  # [B, S], or [B, Q] and [B, S]
    window: int | None = None,
    features: Any = None,  # from encoding.read of the keys; or (of the queries, of the keys)
    implementation: str = "auto",  # one of IMPLEMENTATIONS
) -> jax.Array:  # [B, Q, H, K]
    """Causal attention of the queries to the keys.

    Without positions the keys are the encoding's first S tokens, or the first ones of each document
    where there are segments, and the queries are the last Q of the keys. Given positions must
    ascend within a document and decide what is seen: a query sees keys up to its own position, and
    under a window only those at most `window - 1` positions back.

    Equal neighbours in segments are one document; an id that returns is another document. In a pair
    of segments this holds for the keys; a query belongs to the document of its key among the last Q
    where their segments are equal, else to the last document with its segment.

    Features are those of the keys, of which the queries take the last Q, or a tuple of the
    queries' and the keys' features.
    """
    _check(q, k, v, encoding, window)
    batch, queries, keys = len(q), q.shape[1], k.shape[1]
    given = q_positions is not None or k_positions is not None
    if segments is not None:
        segments = _pair(segments, batch, queries, keys)
    if k_positions is None:
        k_positions = place(encoding, keys, None, segments and segments[1])
    k_positions = check_places("k_positions", k_positions, keys, batch)
    if q_positions is None:
        if queries > keys:
            raise ValueError(f"{queries} queries and {keys} keys: give q_positions and k_positions")
        q_positions = k_positions[..., keys - queries :]
    q_positions = check_places("q_positions", q_positions, queries, batch)
    if given:
        check_ascending(k_positions, segments and segments[1])
    if q_positions.ndim != k_positions.ndim:
        q_positions, k_positions = (jnp.atleast_2d(p) for p in (q_positions, k_positions))
    if phase is None:
        phase = phase_between(encoding, q_positions, k_positions)
    documents = segments or (None, None)
    orders = (q_positions, k_positions) if given else (None, None)
    carried = _features(encoding, features, batch, queries, keys, given)
    contiguous = not given and encoding.consecutive()
    q_tokens, k_tokens = (
        Tokens(position=p, document=d, order=o, features=f, contiguous=contiguous)
        for p, d, o, f in zip((q_positions, k_positions), documents, orders, carried, strict=True)
    )
    out = attention(
        jnp.swapaxes(q, 1, 2),
        jnp.swapaxes(k, 1, 2),
        jnp.swapaxes(v, 1, 2),
        encoding,
        q_tokens,
        k_tokens,
        phase=phase,
        window=window,
        implementation=implementation,
    )
    return jnp.swapaxes(out, 1, 2)


def _features(encoding: Encoding, features, batch: int, queries: int, keys: int, given: bool):
    """The features of the queries and those of the keys."""
    reads = overrides(encoding, "read")
    if features is None:
        if reads:
            raise ValueError(
                f"encoding {encoding.name!r} reads the layer's input x [B, T, D]: give "
                "features=encoding.read(x)"
            )
        return None, None
    if not reads:
        raise ValueError(f"encoding {encoding.name!r} reads no features; give none")
    if type(features) is not tuple:
        if given and queries != keys:
            raise ValueError(
                "one pytree of features serves Q = S alone; give (of queries, of keys)"
            )
        features = jax.tree.map(lambda x: x[:, keys - queries :], features), features
    for side, name, length in zip(features, ("query", "key"), (queries, keys), strict=True):
        for leaf in jax.tree.leaves(side):
            if leaf.shape[:2] not in ((batch, length), (1, length)):
                raise ValueError(
                    f"{name} features must be [{batch}, {length}, ...]; got {leaf.shape}"
                )
    return features


def _pair(segments, batch, queries, keys):
    if not isinstance(segments, tuple | list):
        if queries != keys:
            raise ValueError(
                "one array of segments serves Q = S alone; give (query segments, key segments)"
            )
        numbers = number_documents(
            jnp.atleast_2d(check_segments("segments", segments, keys, batch))
        )
        return numbers, numbers
    q_segments, k_segments = segments
    q_segments = jnp.atleast_2d(check_segments("query segments", q_segments, queries, batch))
    k_segments = jnp.atleast_2d(check_segments("key segments", k_segments, keys, batch))
    check_told_apart(q_segments, k_segments)
    return number_documents_of_both(q_segments, k_segments)


def _check(q, k, v, encoding, window):
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, jax.Array | np.ndarray):
            raise ValueError(f"{name} must be an array of JAX or NumPy; got a {type(x).__name__}")
        if x.dtype not in DTYPES:
            raise ValueError(
                f"attention takes float32 or bfloat16, float64 under jax_enable_x64 (float16 would "
                f"overflow); {name} is {x.dtype}"
            )
    fits = q.ndim == k.ndim == 4 and k.shape == v.shape and k.shape[0] == q.shape[0]
    if not fits or 0 in q.shape + k.shape or k.shape[3] != q.shape[3] or q.shape[2] % k.shape[2]:
        raise ValueError(
            "q is [B, Q, H, K], k and v are [B, S, G, K], at least one of each and H a multiple of "
            f"G; got q {q.shape}, k {k.shape}, v {v.shape}"
        )
    check_encoding(encoding)
    if encoding.depth is not None:
        raise ValueError(
            f"the encoding is stacked over {encoding.depth} layers; attention takes one of them: "
            "encoding.layer(index)"
        )
    if encoding.period > 1:
        raise ValueError(
            f"the layers of encoding {encoding.name!r} differ; attention takes one of them: "
            "encoding.layer(index)"
        )
    if window is not None:
        token_count("window", window)
