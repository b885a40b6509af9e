"""Attention under any encoding: rotation, bias and query scale applied inside."""

import jax
import jax.numpy as jnp

from posenc_jax.attention.plain import plain, rotate
from posenc_jax.encoding import Encoding, Phase, hold_fixed
from posenc_jax.options import whole_number

__all__ = ["attend", "phase_between", "plain", "rotate"]


def attend(
    q: jax.Array,  # [B, Q, H, K]
    k: jax.Array,  # [B, S, G, K]
    v: jax.Array,  # [B, S, G, K]
    encoding: Encoding,
    *,
    q_positions: jax.Array | None = None,  # [Q], or [B, T] for packed rows
    k_positions: jax.Array | None = None,  # [S], or [B, T]
    phase: Phase | None = None,
    segments: jax.Array | tuple[jax.Array, jax.Array] | None = None,  # [B, S], or ([B, Q], [B, S])
    window: int | None = None,
) -> jax.Array:  # [B, Q, H, K]
    """Causal attention of the queries to the keys.

    Without positions the keys are the encoding's first S tokens, the queries the last Q of them.
    Positions of one row ascend; a key is seen from its own position on. Positions that restart
    within a row are packed documents: q and k are the same tokens then, and `segments` keep the
    documents apart. A window shows a query itself and the window - 1 keys before it.
    """
    _check(q, k, v, encoding, window)
    queries, keys = q.shape[1], k.shape[1]
    contiguous = q_positions is None and k_positions is None
    if k_positions is None:
        k_positions = encoding.positions(keys)
    if q_positions is None:
        q_positions = k_positions[..., keys - queries :]
        if queries > keys:
            raise ValueError(f"{queries} queries and {keys} keys: give q_positions and k_positions")
    if q_positions.ndim != k_positions.ndim or (q_positions.ndim == 2 and queries != keys):
        raise ValueError(
            "positions are [Q] and [S], or [B, T] where queries and keys are the same tokens; "
            f"got {q_positions.shape} and {k_positions.shape}"
        )
    q_index = None
    if not contiguous and q_positions.ndim == 1 and q_positions is not k_positions:
        q_index = jnp.searchsorted(k_positions, q_positions, side="right") - 1
    encoding = hold_fixed(encoding)
    if phase is None:
        phase = phase_between(encoding, q_positions, k_positions)
    out = plain(
        jnp.swapaxes(q, 1, 2),
        jnp.swapaxes(k, 1, 2),
        jnp.swapaxes(v, 1, 2),
        encoding,
        phase=phase,
        q_positions=q_positions,
        k_positions=k_positions,
        contiguous=contiguous,
        q_index=q_index,
        segments=_pair(segments, queries, keys),
        window=window,
    )
    return jnp.swapaxes(out, 1, 2)


def phase_between(encoding: Encoding, q_positions, k_positions) -> Phase | None:
    """One phase for queries and keys that stand at different places: they share its centre."""
    queries = q_positions.shape[-1]
    phase = encoding.phase(jnp.concatenate([q_positions, k_positions], axis=-1))
    if phase is None:
        return None
    return phase.replace(
        q_cos=phase.q_cos[..., :queries, :],
        q_sin=phase.q_sin[..., :queries, :],
        k_cos=phase.k_cos[..., queries:, :],
        k_sin=phase.k_sin[..., queries:, :],
    )


def _pair(segments, queries, keys):
    if segments is None or isinstance(segments, tuple):
        return segments
    if queries != keys:
        raise ValueError("one segments array serves Q = S; give (query segments, key segments)")
    return segments, segments


def _check(q, k, v, encoding, window):
    batch, _, heads, size = q.shape
    if k.shape != v.shape or k.shape[0] != batch or k.shape[3] != size or heads % k.shape[2]:
        raise ValueError(
            "q is [B, Q, H, K], k and v are [B, S, G, K] with H a multiple of G; got "
            f"q {q.shape}, k {k.shape}, v {v.shape}"
        )
    if encoding.layers is not None:
        raise ValueError(
            f"the encoding is stacked over {encoding.layers} layers; attention takes one of them: "
            "posenc_jax.encoding.layer(encoding, index)"
        )
    if window is not None:
        whole_number("window", window, at_least=1)
