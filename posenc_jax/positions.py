"""Positions of the tokens of a row, and the documents of a packed row."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, Tokens, check_far, check_reach, in_sight


def tokens_of_row(
    encoding: Encoding,
    batch: int,
    length: int,
    key: jax.Array | None = None,
    documents: jax.Array | None = None,  # [B, T]
) -> Tokens:
    """The tokens of a row without given positions; a key asks for the random draw of training."""
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
    """Positions of a row's tokens; with segments every document starts at the first position."""
    if segments is None:
        return encoding.positions(length, key)
    inside = in_document(segments)
    known = in_sight(inside)
    if known is not None:
        check_reach(encoding, int(known.max()) + 1)
    line = encoding.positions(min(length, encoding.reach or length), key)
    return line.at[inside].get(mode="fill", fill_value=-1)  # beyond the reach: no position


def in_document(segments: jax.Array) -> jax.Array:  # [B, T] -> [B, T]
    """The place of each token within its document, 0, 1, ..."""
    index = jnp.broadcast_to(jnp.arange(segments.shape[1]), segments.shape)
    return index - jax.lax.cummax(jnp.where(_starts(segments), index, 0), axis=1)


def number_documents(segments: jax.Array) -> jax.Array:  # [B, T] -> [B, T]
    """Number the documents of a row 1, 2, ...: a segment id that returns is another document."""
    return jnp.cumsum(_starts(segments), axis=1)


def number_documents_of_both(
    q_segments: jax.Array,  # [B or 1, Q]
    k_segments: jax.Array,  # [B or 1, S]
) -> tuple[jax.Array, jax.Array]:  # [B, Q] and [B, S]
    """`number_documents` of the keys, and the number of each query's document among them.

    Queries are the last Q of the keys. A query whose segment differs from its key's belongs to the
    last document of the row with its segment, or to none (0).
    """
    batch = max(len(q_segments), len(k_segments))
    q_segments, k_segments = (
        jnp.broadcast_to(s, (batch, s.shape[1])) for s in (q_segments, k_segments)
    )
    queries, keys = q_segments.shape[1], k_segments.shape[1]
    numbers = number_documents(k_segments)
    # A sort, not a comparison of all with all: memory must stay linear in the length.
    order = jnp.argsort(k_segments, axis=1, stable=True)
    ascending = jnp.take_along_axis(k_segments, order, axis=1)
    after = jax.vmap(lambda line, at: jnp.searchsorted(line, at, side="right"))
    place = jnp.maximum(after(ascending, q_segments) - 1, 0)
    there = jnp.take_along_axis(ascending, place, axis=1) == q_segments
    last = jnp.take_along_axis(numbers, jnp.take_along_axis(order, place, axis=1), axis=1)
    q_numbers = jnp.where(there, last, 0)
    if queries <= keys:
        own = q_segments == k_segments[:, keys - queries :]
        q_numbers = jnp.where(own, numbers[:, keys - queries :], q_numbers)
    return q_numbers, numbers


def check_told_apart(q_segments: jax.Array, k_segments: jax.Array):
    """Refuse a query that may belong to several documents, where values are known."""
    q_known, k_known = in_sight(q_segments), in_sight(k_segments)
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
                "query of that segment is not among the last Q keys, where it would stand; number "
                "the documents of a row differently"
            )


def _starts(segments):
    changes = segments[:, 1:] != segments[:, :-1]
    return jnp.pad(changes, ((0, 0), (1, 0)), constant_values=True)


def check_places(name: str, places, length: int, batch: int) -> jax.Array:
    """Check that positions are [T] or [B, T] and, where known, that float32 tells them apart."""
    check_far(name, places)
    return check_rows(name, places, length, batch)


def check_segments(name: str, segments, length: int, batch: int) -> jax.Array:
    """Check that segments are integers or booleans, [T] or [B, T]."""
    segments = check_rows(name, segments, length, batch)
    if not (segments.dtype == bool or jnp.issubdtype(segments.dtype, jnp.integer)):
        raise ValueError(f"{name} must be integers or booleans; got {segments.dtype}")
    return segments


def check_ascending(positions, documents: jax.Array | None = None) -> None:
    """Refuse given positions that do not ascend within a document, where they are known."""
    known, numbers = in_sight(positions), None if documents is None else in_sight(documents)
    if known is None or (documents is not None and numbers is None):
        return
    falls = known[..., 1:] <= known[..., :-1]
    if numbers is not None:
        falls = falls & (numbers[..., 1:] == numbers[..., :-1])
    if falls.any():
        raise ValueError(
            "given positions must ascend within a document; those that restart within a row need "
            "segments, one per document"
        )


def check_rows(name: str, rows, length: int, batch: int) -> jax.Array:
    """Check that there is one 32-bit number per token, [T] or [B, T]."""
    known = in_sight(rows)
    if known is not None and known.size and known.dtype in (np.int64, np.uint64):
        for value in (known.min(), known.max()):
            if not -(2**31) <= value < 2**31:
                raise ValueError(f"{name} must fit into 32 bits; got {value}")
    rows = jnp.asarray(rows)
    if jnp.issubdtype(rows.dtype, jnp.integer):
        rows = rows.astype(jnp.int32)  # differences of others would wrap
    if rows.shape not in ((length,), (batch, length), (1, length)):
        raise ValueError(
            f"{name} must be [{length}] or [{batch}, {length}], one for each token; got shape "
            f"{rows.shape}"
        )
    return rows
