"""Attention over regions of keys with separate positions, merged by their log-sums."""

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Encoding, Phase, Region, Tokens


def by_regions(
    compute: Callable,  # plain or blockwise
    q: jax.Array,  # [B, H, Q, K]
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K]
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None,
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K], and [B, H, Q]
    """Run `compute` in each region and merge; `phase` is for the tokens' own positions."""
    given = (q, k, v, encoding, q_tokens, k_tokens)
    regions = with_phases(encoding, q_tokens, k_tokens, phase)
    return merge([compute(*given, phase=each, region=region) for region, each in regions])


def with_phases(
    encoding: Encoding, q_tokens: Tokens, k_tokens: Tokens, phase: Phase | None
) -> Iterator[tuple[Region, Phase | None]]:
    """Every region with its phase; `phase` is for the tokens' own positions."""
    for region in encoding.regions(q_tokens, k_tokens):
        q_position, k_position = region.q_position, region.k_position
        region_phase = phase
        if q_position is not None or k_position is not None:
            q_position = q_tokens.position if q_position is None else q_position
            k_position = k_tokens.position if k_position is None else k_position
            region_phase = phase_between(encoding, q_position, k_position)
        yield region, region_phase


def phase_between(encoding: Encoding, q_positions, k_positions) -> Phase | None:
    """Compute one phase, with a common centre, for queries and keys at different positions."""
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


NONE = -1e30  # log-sum over no keys: below every score, and finite


def merge(
    parts: Sequence[tuple[jax.Array, jax.Array]],
) -> tuple[jax.Array, jax.Array]:  # [B, H, Q, K] and [B, H, Q]
    """Merge (out, log-sum) over disjoint sets of keys into attention over all of them.

    A set in which a query sees no key has weight 0 and gets no gradient.
    """
    outs, logsums = zip(*parts, strict=True)
    logsum = jax.nn.logsumexp(jnp.stack(logsums), axis=0)
    weights = jnp.exp(jnp.stack(logsums) - logsum[None])
    out = jnp.sum(weights[..., None] * jnp.stack(outs), axis=0)
    return out.astype(outs[0].dtype), logsum


def with_sink(out: jax.Array, logsum: jax.Array, sink: jax.Array | None) -> jax.Array:
    """Add logits [B or 1, H, Q or 1] without a value to the softmax of attention."""
    if sink is None:
        return out
    share = jax.nn.sigmoid(logsum - sink.astype(jnp.float32))
    return (out * share[..., None]).astype(out.dtype)
