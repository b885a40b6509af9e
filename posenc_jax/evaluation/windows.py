"""Which tokens are read and which of them are scored, the same for every encoding and extension."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from posenc_jax.data.corpus import Split
from posenc_jax.exits import ConfigError, DataError

WORD = {  # of the titles of tables and pictures
    "same_token": "the same targets at every length, each seen with as much context as fits",
    "nonoverlap": "non-overlapping windows, the same targets at every length",
    "sliding": "sliding windows, the same targets at every length",
    "position": "loss by position in the longest window",
}


@dataclass(frozen=True)
class Text:
    """From each of some documents a stretch of whole longest windows, and one target further."""

    split: Split
    starts: np.ndarray  # [D], where in the split each stretch begins
    windows: np.ndarray  # [D], how many longest windows it holds
    longest: int

    @cached_property
    def hash(self) -> str:
        """Of every token that is read, of its bytes and answers, and where documents begin."""
        digest = hashlib.sha256(f"{self.longest} {self.windows.tolist()} ".encode())
        for column in (self.split.tokens, self.split.bytes_of, self.split.answers):
            for start, count in zip(self.starts, self.windows, strict=True):
                if column is not None:
                    stretch = column[start : start + count * self.longest + 1]
                    digest.update(np.ascontiguousarray(stretch, "<i4").tobytes())
            digest.update(b"|")
        return digest.hexdigest()[:16]

    def token_hash(self, last: int) -> str:
        """Of the last targets of every longest window; where it is the same, rows compare."""
        digest = hashlib.sha256(f"{last} ".encode())
        for start, count in zip(self.starts, self.windows, strict=True):
            targets = self.split.tokens[start + 1 : start + 1 + count * self.longest]
            ends = targets.reshape(count, self.longest)[:, -last:]
            digest.update(f"{count} ".encode())
            digest.update(np.ascontiguousarray(ends, "<i4").tobytes())
        return digest.hexdigest()[:16]


class Plan(NamedTuple):
    """Windows to read, and from which place in each of them on targets are scored."""

    length: int
    starts: np.ndarray  # [N], the first token of each window
    document: np.ndarray  # [N], 0, 1, ...
    first: np.ndarray  # [N], the first scored place; all places up to the end are

    def scored(self) -> np.ndarray:  # [N, length]
        return np.arange(self.length) >= self.first[:, None]

    def targets(self) -> np.ndarray:  # [N, length], where each target is in the split
        return self.starts[:, None] + 1 + np.arange(self.length)


def choose(split: Split, longest: int, *, documents: int, per_document: int) -> Text:
    """The first documents that are long enough, from their beginning; what is left over is not
    read."""
    fitting = np.flatnonzero(split.lengths >= longest + 1)[:documents]
    if len(fitting) < 2:
        lengths = np.sort(split.lengths)[::-1]
        reach = int(lengths[1]) - 1 if len(lengths) > 1 else 0
        raise DataError(
            f"{len(fitting)} of {len(lengths)} documents have the {longest + 1} tokens that the "
            f"longest window takes; at least 2 are needed. Up to length {reach} there are 2: lower "
            "the multiples, or give longer text (data.source, data.path)"
        )
    windows = np.minimum(per_document, (split.lengths[fitting] - 1) // longest)
    return Text(split, split.starts[fitting], windows, longest)


def nonoverlap(text: Text, length: int) -> Plan:
    """Every longest window tiled by windows of `length`; all targets are scored."""
    offsets = [np.arange(0, count * text.longest, length) for count in text.windows]
    return _plan(text, length, offsets, lambda offset: np.zeros_like(offset))


def position(text: Text) -> Plan:
    return nonoverlap(text, text.longest)


def sliding(text: Text, length: int, stride: int) -> Plan:
    """Windows that advance by `stride`; the first of a document scores all of its targets, the
    others their last `stride`, so that every target is scored once."""
    offsets = [
        np.arange(0, count * text.longest - length + 1, stride, dtype=int) for count in text.windows
    ]
    return _plan(text, length, offsets, lambda offset: np.where(offset == 0, 0, length - stride))


def same_token(text: Text, length: int, last: int) -> Plan:
    """For each longest window one of `length` that ends with it; its last targets are scored."""
    offsets = [(np.arange(count) + 1) * text.longest - length for count in text.windows]
    return _plan(text, length, offsets, lambda offset: np.full_like(offset, length - last))


def _plan(text: Text, length: int, offsets: list[np.ndarray], first: Callable) -> Plan:
    starts = [start + offset for start, offset in zip(text.starts, offsets, strict=True)]
    number = [np.full(len(offset), i) for i, offset in enumerate(offsets)]
    return Plan(
        length,
        np.concatenate(starts).astype(np.int64),
        np.concatenate(number),
        first(np.concatenate(offsets)),
    )


def check(protocols, lengths: list[int], stride: int, last: int) -> None:
    """Whether every length scores the same targets."""
    longest, shortest = max(lengths), min(lengths)
    if shortest < 2:
        raise ConfigError(f"every length must be at least 2 tokens; multiples give {lengths}")
    uneven = [n for n in lengths if longest % n]
    if uneven:
        raise ConfigError(
            f"length {uneven[0]} does not divide the longest one, {longest}; choose multiples "
            "that do, or targets would differ between lengths"
        )
    if "same_token" in protocols and last > shortest / 4:
        raise ConfigError(
            f"last must be at most a quarter of the shortest length, {shortest} / 4 = "
            f"{shortest // 4}, or context would differ too much between its targets; got {last}"
        )
    wide = [n for n in lengths if n >= stride]
    if "sliding" in protocols:
        if not wide or any(n % stride for n in wide):
            raise ConfigError(
                "stride must divide every length that it slides over, or targets would be left "
                f"out, and be no longer than the longest; got {stride} for lengths {lengths}"
            )
