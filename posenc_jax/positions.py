"""Positions of the tokens of a row, and documents of a packed row."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, Tokens, check_far, check_reach, known_values


def tokens_of_row(
    encoding: Encoding,
    batch: int,
    length: int,
    key: jax.Array | None = None,
    documents: jax.Array | None = None,  # [B, T]
) -> Tokens:
    """Build the tokens of a row at the encoding's positions; with a key, draw them randomly."""
    position = place(encoding, length, key, documents)
    return Tokens(
        position=check_places("positions", position, length, batch),
        document=documents,
        contiguous=encoding.consecutive(key),
    )


def place(
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


def number_documents(segments: jax.Array) -> jax.Array:  # [B, T] -> [B, T]
    """Number the documents of a row 1, 2, ...; a repeated segment id starts another document."""
    return jnp.cumsum(_starts(segments), axis=1)


def number_documents_of_both(
    q_segments: jax.Array,  # [B or 1, Q]
    k_segments: jax.Array,  # [B or 1, S]
) -> tuple[jax.Array, jax.Array]:  # [B, Q] and [B, S]
    """Return the document numbers of the queries and of the keys.

    Queries are the last Q of the keys. A query whose segment differs from its key's belongs to the
    last document of the row with its segment, or to none (0).
    """
    batch = max(len(q_segments), len(k_segments))
    q_segments, k_segments = (
        jnp.broadcast_to(s, (batch, s.shape[1])) for s in (q_segments, k_segments)
    )
    queries, keys = q_segments.shape[1], k_segments.shape[1]
    numbers = number_documents(k_segments)
    # Sorting keeps memory linear in the length; an all-pairs comparison would not.
    order = jnp.argsort(k_segments, axis=1, stable=True)
    ascending = jnp.take_along_axis(k_segments, order, axis=1)
    after = jax.vmap(lambda ids, query: jnp.searchsorted(ids, query, side="right"))
    index = jnp.maximum(after(ascending, q_segments) - 1, 0)
    exists = jnp.take_along_axis(ascending, index, axis=1) == q_segments
    last = jnp.take_along_axis(numbers, jnp.take_along_axis(order, index, axis=1), axis=1)
    q_numbers = jnp.where(exists, last, 0)
    if queries <= keys:
        same = q_segments == k_segments[:, keys - queries :]
        q_numbers = jnp.where(same, numbers[:, keys - queries :], q_numbers)
    return q_numbers, numbers


def check_unambiguous(q_segments: jax.Array, k_segments: jax.Array):
    """Reject queries, if their values are known, that may belong to several documents."""
    q_known, k_known = known_values(q_segments), known_values(k_segments)
    if q_known is None or k_known is None:
        return
    queries, keys = q_known.shape[1], k_known.shape[1]
    for row in range(max(len(q_known), len(k_known))):
        of_q, of_k = q_known[row % len(q_known)], k_known[row % len(k_known)]
        starts = np.append(True, of_k[1:] != of_k[:-1])
        values, documents = np.unique(of_k[starts], return_counts=True)
        unclear = np.isin(of_q, values[documents > 1])
        if queries <= keys:
            unclear &= of_q != of_k[keys - queries :]
        if unclear.any():
            raise ValueError(
                f"row {row} of the key segments has several documents {of_q[unclear][0]}, and a "
                "query of that segment differs from its key among the last Q; number the documents "
                "of a row differently"
            )


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
