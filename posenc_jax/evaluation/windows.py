"""Choose the tokens that are read and scored, the same for every encoding and extension."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from posenc_jax.data.corpora import Split
from posenc_jax.errors import ConfigError, DataError

FEWEST = 50  # documents to read where there are enough


@dataclass(frozen=True)
class Text:
    """The longest windows that are read: stretches of documents that do not overlap."""

    split: Split
    document: np.ndarray  # [W], the number of its document in the split, ascending
    starts: np.ndarray  # [W], its first token in the split
    longest: int
    name: str = "held-out"  # of the evaluation
    source: str = ""  # what was read, in words
    data: str = ""  # fingerprint of what was read

    @cached_property
    def documents(self) -> np.ndarray:  # [D]
        return np.unique(self.document)

    @cached_property
    def units(self) -> np.ndarray | None:  # [D], 0, 1, ...
        """Which of these documents were held out together, and are one in errors; None: none."""
        groups = self.split.groups
        if groups is None:
            return None
        return np.unique(groups[self.documents], return_inverse=True)[1]

    @cached_property
    def hash(self) -> str:
        """Hash of every token that may be read, its bytes and answers, and the windows' starts."""
        digest = hashlib.sha256(f"{self.longest} {self.split.lossless} ".encode())
        for number in self.documents:
            begin = self.split.starts[number]
            starts = self.starts[self.document == number] - begin
            digest.update(f"{starts.tolist()} ".encode())
            for column in (self.split.tokens, self.split.bytes_of, self.split.answers):
                if column is not None:
                    stretch = column[begin : begin + starts[-1] + self.longest + 1]
                    digest.update(np.ascontiguousarray(stretch, "<i4").tobytes())
            digest.update(b"|")
        return digest.hexdigest()[:16]

    def token_hash(self, plan: "Plan") -> str:
        """Hash of the targets that a plan scores; where it is the same, rows compare."""
        places = np.sort(plan.targets()[plan.scored()])
        document = np.searchsorted(self.split.starts, places, side="right") - 1
        inside = places - self.split.starts[document]
        digest = hashlib.sha256()
        for column in (np.searchsorted(self.documents, document), inside):
            digest.update(np.ascontiguousarray(column, "<i8").tobytes())
        digest.update(np.ascontiguousarray(self.split.tokens[places], "<i4").tobytes())
        return digest.hexdigest()[:16]


class Plan(NamedTuple):
    """Windows to read, and the first scored place in each of them."""

    length: int
    starts: np.ndarray  # [N], the first token of each window
    document: np.ndarray  # [N], 0, 1, ...
    first: np.ndarray  # [N], the first scored place; all places up to the end are
    kept: np.ndarray | None = None  # [N, length], which of these are; None: all
    together: bool = False  # the answers of a document count as one, right if all are

    def scored(self) -> np.ndarray:  # [N, length]
        late = np.arange(self.length) >= self.first[:, None]
        return late if self.kept is None else late & self.kept

    def targets(self) -> np.ndarray:  # [N, length], where each target is in the split
        return self.starts[:, None] + 1 + np.arange(self.length)


def choose(
    split: Split,
    longest: int,
    *,
    documents: int | None = None,  # at most; None: 50, or more where these hold too few windows
    per_document: int | None = None,  # windows at most; None: as many as it takes
    wanted: int = 0,  # windows in all, where per_document is None
    spread: bool = True,
    kept: np.ndarray | None = None,  # [documents], bool: those that may be read
) -> Text:
    """Choose windows of the first documents that are long enough: spread over each document, so
    that not all are title pages, or from its beginning on."""
    fitting = np.flatnonzero((split.lengths >= longest + 1) & (True if kept is None else kept))
    _check_enough(split, fitting, longest)
    room = (split.lengths[fitting] - 1) // longest
    if not documents:
        enough = int(np.searchsorted(np.cumsum(room), wanted)) + 1
        documents = max(FEWEST, enough if not per_document else 0)
    fitting, room = fitting[:documents], room[:documents]
    counts = np.minimum(room, per_document or _even(room, wanted))
    number = np.repeat(fitting, counts)
    index = np.concatenate([np.arange(count) for count in counts])  # within its document
    offsets = index * longest
    if spread:  # the rest is spread evenly between windows, half a share at either end
        count = np.repeat(counts, counts)
        free = np.repeat(split.lengths[fitting] - 1, counts) - count * longest
        offsets = offsets + free * (2 * index + 1) // (2 * count)
    return Text(split, number, split.starts[number] + offsets, longest)


def in_stretches(split: Split, longest: int) -> Split:
    """A split of one document as up to 50 stretches of it, which then count as documents: errors
    are taken over them. One of several documents as it is."""
    if len(split.lengths) > 1:
        return split
    room = len(split.tokens) // (longest + 1)  # windows in all
    count = max(1, room // max(1, -(-room // FEWEST)))  # each of as many windows
    starts = np.linspace(0, len(split.tokens), count + 1).astype(np.int64)
    return replace(split, starts=starts, digests=np.repeat(split.digests, count), groups=None)


def _even(room: np.ndarray, wanted: int) -> int:
    """The fewest windows per document that give as many as wanted, if that is possible."""
    each = np.arange(1, room.max() + 1)
    enough = np.minimum(room[:, None], each).sum(axis=0) >= wanted
    return int(each[np.argmax(enough)] if enough.any() else each[-1])


def _check_enough(split: Split, fitting: np.ndarray, longest: int) -> None:
    if len(fitting) >= 2:
        return
    lengths = np.sort(split.lengths)[::-1]
    reach = int(lengths[1]) - 1 if len(lengths) > 1 else 0
    raise DataError(
        f"documents with the {longest + 1} tokens that the longest window takes: {len(fitting)} of "
        f"{len(lengths)}; at least 2 are needed. Up to length {reach} there are 2: lower "
        "the multiples, or give longer text (data.source, data.path)"
    )


def plan_of(text: Text, length: int, offsets: np.ndarray, first, kept=None) -> Plan:
    """Plan the windows at offsets [W, N] from the starts of the longest ones that are `kept`."""
    kept = np.ones(offsets.shape, bool) if kept is None else kept
    document = np.searchsorted(text.documents, text.document)
    return Plan(
        length,
        (text.starts[:, None] + offsets)[kept].astype(np.int64),
        np.broadcast_to(document[:, None], offsets.shape)[kept],
        np.broadcast_to(first, offsets.shape)[kept],
    )


def check(lengths: list[int]) -> None:
    """Check that windows of every length tile the longest one."""
    longest, shortest = max(lengths), min(lengths)
    if shortest < 2:
        raise ConfigError(f"every length must be at least 2 tokens; multiples give {lengths}")
    uneven = [n for n in lengths if longest % n]
    if uneven:
        raise ConfigError(
            f"length {uneven[0]} does not divide the longest one, {longest}; choose multiples "
            "that do, or targets would differ between lengths"
        )
