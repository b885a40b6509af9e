"""Positions of the tokens of a row, and documents of a packed row."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, Tokens, check_far, check_reach, known_values


def place(
    x: jax.Array,  # [B, T, D], embeddings
    encoding: Encoding,
    key: jax.Array | None,  # draws the positions of a training step; None: of an evaluation
    segments: jax.Array | None = None,  # [T] or [B, T], as in `attend`
) -> tuple[jax.Array, Tokens]:
    """Return the input of the first layer, and the tokens of the row, which `attend` takes.

    Their `document`, if there are segments, also goes to `encoding.read(x, document=...)`.
    """
    if not isinstance(encoding, Encoding) or x.ndim != 3:
        raise ValueError("place takes embeddings x [B, T, D], an encoding, and a key or None")
    batch, length, _ = x.shape
    if segments is not None:
        segments = jnp.broadcast_to(documents_of(segments, length, batch), (batch, length))
    row = tokens_of_row(encoding, batch, length, key, segments)
    return encoding.layer(0).embed(x, row.position), row


def tokens_of_row(
    encoding: Encoding,
    batch: int,
    length: int,
    key: jax.Array | None = None,
    documents: jax.Array | None = None,  # [B, T]
) -> Tokens:
    """Build the tokens of a row at the encoding's positions; with a key, draw them randomly."""
    position = positions_of_row(encoding, length, key, documents)
    return Tokens(
        position=check_places("positions", position, length, batch),
        document=documents,
        contiguous=encoding.consecutive(key),
    )


def positions_of_row(
    encoding: Encoding,
    length: int,
    key: jax.Array | None = None,
    segments: jax.Array | None = None,  # [B, T]
) -> jax.Array:  # [T], or [B, T] with segments
    """Return the positions of a row's tokens; with segments they restart in each document."""
    if segments is None:
        return encoding.positions(length, key)
    inside = in_document(segments)
    known = known_values(inside)
    if known is not None:
        check_reach(encoding, int(known.max()) + 1)
    positions = encoding.positions(min(length, encoding.reach or length), key)
    return positions.at[inside].get(mode="fill", fill_value=-1)  # -1 beyond the reach


def in_document(segments: jax.Array) -> jax.Array:  # [B, T] -> [B, T]
    """Return the index of each token in its document, 0, 1, ..."""
    index = jnp.broadcast_to(jnp.arange(segments.shape[1]), segments.shape)
    return index - jax.lax.cummax(jnp.where(_starts(segments), index, 0), axis=1)


def documents_of(segments, length: int, batch: int) -> jax.Array:  # [B or 1, T]
    """Check the segments of rows and number their documents."""
    return number_documents(jnp.atleast_2d(check_segments("segments", segments, length, batch)))


def number_documents(segments: jax.Array) -> jax.Array:  # [B, T] -> [B, T]
    """Number the documents of a row 1, 2, ...; a repeated segment id starts another document."""
    return jnp.cumsum(_starts(segments), axis=1)


def _starts(segments):
    changes = segments[:, 1:] != segments[:, :-1]
    return jnp.pad(changes, ((0, 0), (1, 0)), constant_values=True)


def check_places(name: str, places, length: int, batch: int) -> jax.Array:
    """Check that positions are [T] or [B, T] and, if known, that float32 can hold them."""
    check_far(name, places)
    return check_rows(name, places, length, batch)


def check_segments(name: str, segments, length: int, batch: int) -> jax.Array:
    """Check that segments are integers or booleans, [T] or [B, T]."""
    segments = check_rows(name, segments, length, batch)
    if not (segments.dtype == bool or jnp.issubdtype(segments.dtype, jnp.integer)):
        raise ValueError(f"{name} must be integers or booleans; got {segments.dtype}")
    return segments


def check_ascending(positions, documents: jax.Array | None = None) -> None:
    """Reject known positions that do not ascend within a document."""
    known, numbers = known_values(positions), None if documents is None else known_values(documents)
    if known is None or (documents is not None and numbers is None):
        return
    falls = known[..., 1:] <= known[..., :-1]
    if numbers is not None:
        falls = falls & (numbers[..., 1:] == numbers[..., :-1])
    if falls.any():
        raise ValueError(
            "positions must ascend within a document; if they restart within a row, give segments, "
            "one per document"
        )


def check_rows(name: str, rows, length: int, batch: int) -> jax.Array:
    """Check that there is one 32-bit number per token, [T] or [B, T]."""
    known = known_values(rows)
    if known is not None and known.size and known.dtype in (np.int64, np.uint64):
        for value in (known.min(), known.max()):
            if not -(2**31) <= value < 2**31:
                raise ValueError(f"{name} must fit into 32 bits; got {value}")
    rows = jnp.asarray(rows)
    if jnp.issubdtype(rows.dtype, jnp.integer):
        rows = rows.astype(jnp.int32)  # other types would wrap in differences
    if rows.shape not in ((length,), (batch, length), (1, length)):
        raise ValueError(
            f"{name} must be [{length}] or [{batch}, {length}], one for each token; got shape "
            f"{rows.shape}"
        )
    return rows
