"""Documents packed in a row: where each token stands, and what its neighbours are."""

import jax
import jax.numpy as jnp
from jax.core import Tracer

from posenc_jax.encoding import Encoding, check_reach


def place(
    encoding: Encoding,
    length: int,
    key: jax.Array | None = None,
    segments: jax.Array | None = None,  # [B, T]
) -> jax.Array:  # [T], or [B, T] with segments
    """The positions of a row's tokens; with segments every document starts at the first of them."""
    if segments is None:
        return encoding.positions(length, key)
    inside = in_document(segments)
    if not isinstance(inside, Tracer):
        check_reach(encoding, int(jnp.max(inside)) + 1)
    line = encoding.positions(min(length, encoding.reach or length), key)
    return line.at[inside].get(mode="fill", fill_value=-1)  # beyond the reach: no position


def in_document(segments: jax.Array) -> jax.Array:  # [B, T] -> [B, T]
    """The place of each token within its document, 0, 1, ..."""
    index = jnp.broadcast_to(jnp.arange(segments.shape[1]), segments.shape)
    return index - jax.lax.cummax(jnp.where(_starts(segments), index, 0), axis=1)


def number(segments: jax.Array) -> jax.Array:  # [B, T] -> [B, T]
    """1, 2, ... for the documents of a row: a number that comes again is another document."""
    return jnp.cumsum(_starts(segments), axis=1)


def _starts(segments):
    changes = segments[:, 1:] != segments[:, :-1]
    return jnp.pad(changes, ((0, 0), (1, 0)), constant_values=True)


def check_places(name: str, places, length: int, batch: int) -> jax.Array:
    """Positions are [T] or [B, T] for exactly the tokens there are."""
    places = jnp.asarray(places)
    if jnp.issubdtype(places.dtype, jnp.integer):
        places = places.astype(jnp.int32)  # differences of others would wrap
    if places.shape not in ((length,), (batch, length), (1, length)):
        raise ValueError(
            f"{name} must be [{length}] or [{batch}, {length}], one for each token; got shape "
            f"{places.shape}"
        )
    return places
