"""Keys in the order of their tokens, for schemes that sum over keys."""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Tokens


def ascending(
    k: jax.Array,  # [B, G, S, K]
    v: jax.Array,  # [B, G, S, K]
    tokens: Tokens,
    window: int | None,
) -> tuple[jax.Array, jax.Array, Tokens]:
    """Sort keys by their order: those of a window may come from a ring, which starts anywhere."""
    if tokens.order is None or window is None:
        return k, v, tokens
    chosen = jnp.argsort(jnp.atleast_2d(tokens.order), axis=1, stable=True)  # [B or 1, S]
    by_token = chosen[:, None, :, None]
    k, v = (jnp.take_along_axis(x, by_token, axis=2) for x in (k, v))

    def sorted_row(values):  # [S] or [B, S]
        return jnp.take_along_axis(jnp.atleast_2d(values), chosen, axis=1)

    document = None if tokens.document is None else sorted_row(tokens.document)
    return k, v, tokens.replace(order=sorted_row(tokens.order), document=document)
