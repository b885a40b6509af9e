"""Attention with any encoding: rotation, bias and query scale are applied inside."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention import ring, target
from posenc_jax.attention.blockwise import blockwise
from posenc_jax.attention.kernels import MATERIALISED, Unfit
from posenc_jax.attention.plain import check_fits, part, plain, ready, rotate, turn
from posenc_jax.attention.regions import by_regions, merge, phase_between, with_sink
from posenc_jax.attention.several import kernel, kernel_if_fit
from posenc_jax.attention.sharpest import sharpest
from posenc_jax.checks import IMPLEMENTATIONS, choice
from posenc_jax.encoding import Encoding, Phase, Tokens, check_encoding
from posenc_jax.layers import bearer, overrides, topk_of
from posenc_jax.positions import (
    check_ascending,
    check_places,
    documents_of,
    positions_of_row,
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
    "turn",
]

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float64)
CROSSOVER = 64  # from this many keys blockwise trains faster than plain on CPU
FEW = 16  # up to this many queries of more keys, blocks would be mostly padding


def attention(
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K], or another size than keys have
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None = None,
    implementation: str = "auto",
) -> jax.Array:  # [B, H, Q, K] of the values
    """Compute attention with heads before tokens, by the chosen implementation."""
    choice("implementation", implementation, IMPLEMENTATIONS)
    is_own, topk = overrides(encoding, "attend"), topk_of(encoding)
    if is_own or topk is not None:
        if implementation == "kernel":
            what = (
                f"own attention of encoding {encoding.name!r}" if is_own else "highest logits alone"
            )
            raise Unfit(f"the {what}")
        if k_tokens.axis is not None:
            ring.check(encoding)
    if is_own:
        q, k, v = ready(q, k, v, encoding, q_tokens, k_tokens, phase)
        own = bearer(encoding, "attend")
        own = own.replace(window=encoding.narrowed(), topk=topk, implementation=implementation)
        return own.attend(q, k, v, q_tokens, k_tokens)
    arguments: Any = (q, k, v, encoding, q_tokens, k_tokens)
    if topk is not None:
        out, logsum = sharpest(*arguments, phase=phase)
        return with_sink(out, logsum, encoding.sink(q_tokens))
    if implementation == "kernel":
        return kernel(*arguments, phase=phase)
    if implementation == "auto":
        implementation = _without_kernel(encoding, q.shape[2], k.shape[2])

        def otherwise(*arguments):
            return attention(*arguments[:-1], phase=arguments[-1], implementation=implementation)

        out = kernel_if_fit(*arguments, phase=phase, otherwise=otherwise)
        if out is not None:
            return out
    compute = {"plain": plain, "blockwise": blockwise}[implementation]
    if overrides(encoding, "regions"):
        compute = functools.partial(by_regions, compute)
    if k_tokens.axis is not None:
        compute = functools.partial(ring.attention, compute)
    out, logsum = compute(*arguments, phase=phase)
    return with_sink(out, logsum, encoding.sink(q_tokens))


def attention_after(
    q: jax.Array,  # [B, H, T, K]
    k: jax.Array,  # [B, G, T, K]
    v: jax.Array,  # [B, G, T, K], or another size than keys have
    encoding: Encoding,
    tokens: Tokens,
    before: jax.Array,
    counts: jax.Array,
) -> tuple[jax.Array, jax.Array]:  # [B, H, T, K] of the values, and the state
    """Compute attention to these tokens and to those of a state; see `Encoding.recur`."""
    phase = encoding.phase(tokens.position)
    q, k, v = ready(q, k, v, encoding, tokens, tokens, phase)
    return bearer(encoding, "recur").recur(q, k, v, before, counts)


def _without_kernel(encoding: Encoding, queries: int, keys: int) -> str:
    few = queries <= FEW and queries < keys
    if keys < CROSSOVER or few:
        return "plain"
    fits_gpu = target.platform() == "gpu" and keys <= MATERIALISED
    if fits_gpu and any(bearer(encoding, hook).plain_on_gpu for hook in ("bias", "logits")):
        return "plain"
    return "blockwise"


def attend(
    q: jax.Array,  # [B, Q, H, K]
    k: jax.Array,  # [B, S, G, K]
    v: jax.Array,  # [B, S, G, K]
    encoding: Encoding,
    row: Tokens | None = None,  # of the keys, from `posenc_jax.place`
    *,
    q_positions: jax.Array | None = None,  # [Q] or [B, Q]
    k_positions: jax.Array | None = None,  # [S] or [B, S]
    phase: Phase | None = None,
    segments: jax.Array | None = None,  # [S] or [B, S], of the keys
    window: int | None = None,
    features: Any = None,  # encoding.read(x of the keys), or a tuple (of queries, of keys)
    implementation: str = "auto",  # one of IMPLEMENTATIONS
) -> jax.Array:  # [B, Q, H, K]
    """Compute causal attention of the queries to the keys.

    The queries are the last Q tokens of the row. Without one, and without positions, the keys have
    the first S positions, which restart in each document of segments; encodings that embed or draw
    positions need a row. Given positions must ascend within a document and determine visibility: a
    query sees keys up to its own position, and with a window only those at most `window - 1`
    positions back.

    Neighbours with equal segments share a document; an id that recurs later starts another one. The
    queries belong to the documents of the last Q keys.

    Features belong to the keys, the last Q of which are the queries', or come as a tuple of query
    and key features; segments [B, T] also go to `encoding.read(x, document=segments)`. Products of
    float64 arrays are summed in float32.
    """
    _check(q, k, v, encoding)
    encoding = encoding.windowed(window)
    placed = q_positions is not None or k_positions is not None
    encoding = encoding if placed else encoding.for_rows(k.shape[1])
    q_tokens, k_tokens = _tokens(q, k, encoding, row, q_positions, k_positions, segments)
    features = _features(encoding, features, len(q), q.shape[1], k.shape[1], placed)
    q_tokens, k_tokens = (
        tokens.replace(features=own)
        for tokens, own in zip((q_tokens, k_tokens), features, strict=True)
    )
    if phase is None:
        phase = phase_between(encoding, q_tokens.position, k_tokens.position)
    out = attention(
        jnp.swapaxes(q, 1, 2),
        jnp.swapaxes(k, 1, 2),
        jnp.swapaxes(v, 1, 2),
        encoding,
        q_tokens,
        k_tokens,
        phase=phase,
        implementation=implementation,
    )
    return jnp.swapaxes(out, 1, 2)


def _tokens(
    q, k, encoding: Encoding, row: Any, q_positions, k_positions, segments
) -> tuple[Tokens, Tokens]:
    """Return the queries and the keys, of a row, at given positions, or at the first ones."""
    batch, queries, keys = len(q), q.shape[1], k.shape[1]
    placed = q_positions is not None or k_positions is not None
    if row is not None:
        fits = isinstance(row, Tokens) and row.position.shape[-1] == keys >= queries
        if placed or segments is not None or not fits:
            raise ValueError(
                f"row must be that of posenc_jax.place, with the {keys} keys, of which the "
                f"{queries} queries are the last, and no positions or segments beside it"
            )
        return part(row, keys - queries, keys), row
    if not placed and any(overrides(encoding, hook) for hook in ("embed", "positions")):
        raise ValueError(
            f"encoding {encoding.name!r} changes embeddings or positions before the first layer: "
            "x, row = posenc_jax.place(x, encoding, key) there, and attend(q, k, v, encoding, row)"
        )
    if queries > keys and (q_positions is None or segments is not None):
        raise ValueError(
            f"more queries, {queries}, than keys, {keys}: give q_positions, and no segments"
        )
    documents = None if segments is None else documents_of(segments, keys, batch)
    if k_positions is None:
        k_positions = positions_of_row(encoding, keys, None, documents)
    k_positions = check_places("k_positions", k_positions, keys, batch)
    if q_positions is None:
        q_positions = k_positions[..., keys - queries :]
    q_positions = check_places("q_positions", q_positions, queries, batch)
    if placed:
        check_ascending(k_positions, documents)
    if q_positions.ndim != k_positions.ndim:
        q_positions, k_positions = (jnp.atleast_2d(p) for p in (q_positions, k_positions))
    both = (None if documents is None else documents[:, keys - queries :]), documents
    orders = (q_positions, k_positions) if placed else (None, None)
    sides = zip((q_positions, k_positions), both, orders, strict=True)
    of_queries, of_keys = (Tokens(p, d, o, contiguous=not placed) for p, d, o in sides)
    return of_queries, of_keys


def _features(encoding: Encoding, features, batch: int, queries: int, keys: int, placed: bool):
    """Return the features of the queries and those of the keys."""
    reads = overrides(encoding, "read")
    if features is None:
        if reads:
            raise ValueError(
                f"encoding {encoding.name!r} reads the layer's input x [B, T, D]: give "
                "features=encoding.read(x)"
            )
        return None, None
    if not reads:
        raise ValueError(f"encoding {encoding.name!r} takes no features")
    if type(features) is not tuple:
        if placed and queries != keys:
            raise ValueError(
                "one pytree of features requires Q = S; give (query features, key features)"
            )
        features = jax.tree.map(lambda x: x[:, keys - queries :], features), features
    for side, name, length in zip(features, ("query", "key"), (queries, keys), strict=True):
        for leaf in jax.tree.leaves(side):
            if leaf.shape[:2] not in ((batch, length), (1, length)):
                raise ValueError(
                    f"{name} features must be [{batch}, {length}, ...]; got {leaf.shape}"
                )
    return features


def _check(q, k, v, encoding):
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, jax.Array | np.ndarray):
            raise ValueError(f"{name} must be a JAX or NumPy array; got a {type(x).__name__}")
        if x.dtype not in DTYPES:
            raise ValueError(
                "attention takes float32 or bfloat16, and float64 with jax_enable_x64, of which it "
                f"sums products in float32 (float16 would overflow); {name} is {x.dtype}"
            )
    fits = q.ndim == k.ndim == 4 and k.shape == v.shape and k.shape[0] == q.shape[0]
    if not fits or 0 in q.shape + k.shape or k.shape[3] != q.shape[3] or q.shape[2] % k.shape[2]:
        raise ValueError(
            "q must be [B, Q, H, K], k and v [B, S, G, K], with no empty axis and H a multiple "
            f"of G; got q {q.shape}, k {k.shape}, v {v.shape}"
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
    if overrides(encoding, "phase"):
        check_fits(encoding, "head_dim", q.shape[3])
