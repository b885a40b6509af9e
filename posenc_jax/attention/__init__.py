"""Attention under any encoding: rotation, bias and query scale applied inside."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import packing
from posenc_jax.attention.blockwise import blockwise
from posenc_jax.attention.kernels import kernel, kernel_if_fit
from posenc_jax.attention.plain import plain, rotate
from posenc_jax.encoding import Encoding, Phase, hold_fixed, in_sight
from posenc_jax.options import IMPLEMENTATIONS, choice, whole_number

__all__ = ["IMPLEMENTATIONS", "attend", "attention", "blockwise", "plain", "rotate"]

CROSSOVER = 64  # keys from which blockwise trains faster than plain, on CPU


def attention(q, k, v, encoding: Encoding, *, implementation: str = "auto", **places) -> jax.Array:
    """The heads-major core, q [B, H, Q, K]: `plain`, or what is faster, from the same arguments."""
    choice("implementation", implementation, IMPLEMENTATIONS)
    if encoding.window is not None:
        places["window"] = min(places.get("window") or encoding.window, encoding.window)
    if implementation == "auto":
        out = kernel_if_fit(q, k, v, encoding, **places)
        if out is not None:
            return out
        implementation = "blockwise" if k.shape[2] >= CROSSOVER else "plain"
    ways = {"plain": plain, "blockwise": blockwise, "kernel": kernel}
    return ways[implementation](q, k, v, encoding, **places)


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
    implementation: str = "auto",  # one of IMPLEMENTATIONS
) -> jax.Array:  # [B, Q, H, K]
    """Causal attention of the queries to the keys.

    Without positions the keys are the encoding's first S tokens, or the first ones of each document
    where there are segments, and the queries are the last Q of the keys. Positions that are given
    ascend within a document and say what is seen: a key from its own position on, and under a
    window only `window - 1` positions back.

    Equal neighbours in segments are one document; a number that comes again is another one. In a
    pair that is said of the keys, and a query is of the document of its key among the last Q where
    their segments are equal, else of the last document with its segment.
    """
    _check(q, k, v, encoding, window)
    batch, queries, keys = len(q), q.shape[1], k.shape[1]
    given = q_positions is not None or k_positions is not None
    if segments is not None:
        segments = _pair(segments, batch, queries, keys)
    if k_positions is None:
        k_positions = packing.place(encoding, keys, None, segments and segments[1])
    k_positions = packing.check_places("k_positions", k_positions, keys, batch)
    if q_positions is None:
        if queries > keys:
            raise ValueError(f"{queries} queries and {keys} keys: give q_positions and k_positions")
        q_positions = k_positions[..., keys - queries :]
    q_positions = packing.check_places("q_positions", q_positions, queries, batch)
    if given and segments is None:
        _check_ascending(k_positions)
    if q_positions.ndim != k_positions.ndim:
        q_positions, k_positions = (jnp.atleast_2d(p) for p in (q_positions, k_positions))
    encoding = hold_fixed(encoding)
    if phase is None:
        phase = phase_between(encoding, q_positions, k_positions)
    out = attention(
        jnp.swapaxes(q, 1, 2),
        jnp.swapaxes(k, 1, 2),
        jnp.swapaxes(v, 1, 2),
        encoding,
        phase=phase,
        q_positions=q_positions,
        k_positions=k_positions,
        contiguous=not given,
        order=(q_positions, k_positions) if given else None,
        segments=segments,
        window=window,
        implementation=implementation,
    )
    return jnp.swapaxes(out, 1, 2)


def phase_between(encoding: Encoding, q_positions, k_positions) -> Phase | None:
    """One phase for queries and keys that stand at different places: they share its centre."""
    queries = q_positions.shape[-1]
    rows = jnp.broadcast_shapes(q_positions.shape[:-1], k_positions.shape[:-1])
    both = [jnp.broadcast_to(p, (*rows, p.shape[-1])) for p in (q_positions, k_positions)]
    phase = encoding.phase(jnp.concatenate(both, axis=-1))
    if phase is None:
        return None
    return phase.replace(
        q_cos=phase.q_cos[..., :queries, :],
        q_sin=phase.q_sin[..., :queries, :],
        k_cos=phase.k_cos[..., queries:, :],
        k_sin=phase.k_sin[..., queries:, :],
    )


def _pair(segments, batch, queries, keys):
    if not isinstance(segments, tuple | list):
        if queries != keys:
            raise ValueError("one segments array serves Q = S; give (query segments, key segments)")
        numbers = packing.number(
            jnp.atleast_2d(packing.check_rows("segments", segments, keys, batch))
        )
        return numbers, numbers
    q_segments, k_segments = segments
    q_segments = jnp.atleast_2d(packing.check_rows("query segments", q_segments, queries, batch))
    k_segments = jnp.atleast_2d(packing.check_rows("key segments", k_segments, keys, batch))
    packing.check_told_apart(q_segments, k_segments)
    return packing.number_both(q_segments, k_segments)


def _check_ascending(positions):
    known = in_sight(positions)
    if known is not None and np.any(known[..., 1:] <= known[..., :-1]):
        raise ValueError("positions that restart within a row need segments, one per document")


def _check(q, k, v, encoding, window):
    fits = q.ndim == k.ndim == 4 and k.shape == v.shape and k.shape[0] == q.shape[0]
    if not fits or k.shape[3] != q.shape[3] or q.shape[2] % k.shape[2]:
        raise ValueError(
            "q is [B, Q, H, K], k and v are [B, S, G, K] with H a multiple of G; got "
            f"q {q.shape}, k {k.shape}, v {v.shape}"
        )
    if any(x.dtype == jnp.float16 for x in (q, k, v)):
        raise ValueError("attention takes float32 or bfloat16; float16 would overflow")
    if encoding.layers is not None:
        raise ValueError(
            f"the encoding is stacked over {encoding.layers} layers; attention takes one of them: "
            "posenc_jax.encoding.layer(encoding, index)"
        )
    if window is not None:
        whole_number("window", window, at_least=1)
