"""Choose the tokens to read and score, the same for every encoding and extension."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from posenc_jax.data.corpora import Split
from posenc_jax.evaluation.statistics import PACKAGE, STRETCH
from posenc_jax.runtime.errors import DataError

FEWEST = 50  # documents to read, if there are that many


@dataclass(frozen=True)
class Text:
    """The longest windows to read: non-overlapping stretches of documents."""

    split: Split
    document: np.ndarray  # [W], the number of its document in the split, ascending
    starts: np.ndarray  # [W], its first token in the split
    longest: int
    name: str = "held-out"  # of the evaluation
    source: str = ""  # the text read, in words
    data: str = ""  # fingerprint of that text
    of_protocol: Any = None  # what a protocol needs beside it: words to plant, targets to keep

    @cached_property
    def documents(self) -> np.ndarray:  # [D]
        return np.unique(self.document)

    @cached_property
    def units(self) -> np.ndarray | None:  # [D], 0, 1, ...
        """Group of each document, one unit in standard errors; None without groups."""
        groups = self.split.groups
        if groups is None:
            return None
        return np.unique(groups[self.documents], return_inverse=True)[1]

    @property
    def kind(self) -> str | None:
        """Kind of these units."""
        return STRETCH if self.split.stretches else None if self.units is None else PACKAGE

    @cached_property
    def hash(self) -> str:
        """Hash of every readable token, its bytes and answers, and the starts of windows."""
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


@dataclass(frozen=True)
class Reading:
    """Windows of a text and the targets scored in each: those of a protocol at one length, or one
    part of them."""

    text: Text
    length: int
    starts: np.ndarray  # [N], the first token of each window
    document: np.ndarray  # [N], 0, 1, ...
    first: np.ndarray  # [N], the first scored place; all places after it are scored
    kept: np.ndarray | None = None  # [N, length], limits scoring to these places; None: all
    part: str = ""  # of the targets, or the change to the text
    facts: Mapping[str, Any] = field(default_factory=dict)  # columns that the protocol declares
    older: np.ndarray | None = None  # [scored, settings], the answers that older settings give
    # Which of the last targets [N, last] count as answers, from the tokens ranked first.
    counts: Callable[[np.ndarray], np.ndarray] | None = None
    # Which of them are right, from their nats; None: those ranked first.
    right: Callable[[np.ndarray], np.ndarray] | None = None
    unchanged: "Reading | None" = None  # the same targets in the text before it was changed

    def scored(self) -> np.ndarray:  # [N, length]
        late = np.arange(self.length) >= self.first[:, None]
        return late if self.kept is None else late & self.kept

    def targets(self) -> np.ndarray:  # [N, length], index of each target in the split
        return self.starts[:, None] + 1 + np.arange(self.length)

    @cached_property
    def token_hash(self) -> str:
        """Hash of the scored targets; rows with equal hashes are comparable."""
        if self.unchanged is not None:
            return self.unchanged.token_hash
        split, places = self.text.split, np.sort(self.targets()[self.scored()])
        document = np.searchsorted(split.starts, places, side="right") - 1
        digest = hashlib.sha256()
        for column in (
            np.searchsorted(self.text.documents, document),
            places - split.starts[document],
        ):
            digest.update(np.ascontiguousarray(column, "<i8").tobytes())
        digest.update(np.ascontiguousarray(split.tokens[places], "<i4").tobytes())
        return digest.hexdigest()[:16]


def choose(
    split: Split,
    longest: int,
    *,
    documents: int | None = None,  # at most; None: 50, or more if 50 hold too few windows
    per_document: int | None = None,  # at most; None: as many as `wanted` needs
    wanted: int = 0,  # windows in total, where per_document is None
    spread: bool = True,
    kept: np.ndarray | None = None,  # [documents], bool: documents that may be read
) -> Text:
    """Choose windows of the first documents that are long enough, from the beginning of each or
    spread over it, which avoids reading title pages alone."""
    fitting = np.flatnonzero((split.lengths >= longest + 1) & (True if kept is None else kept))
    _check_enough(split, fitting, longest)
    room = (split.lengths[fitting] - 1) // longest
    if not documents:
        enough = int(np.searchsorted(np.cumsum(room), wanted)) + 1
        documents = max(FEWEST, enough if not per_document else 0)
    fitting, room = fitting[:documents], room[:documents]
    counts = np.minimum(room, per_document or _even(room, wanted))
    number = np.repeat(fitting, counts)
    index = np.concatenate([np.arange(count) for count in counts])  # within the document
    offsets = index * longest
    if spread:  # equal gaps between windows, half a gap at either end
        count = np.repeat(counts, counts)
        free = np.repeat(split.lengths[fitting] - 1, counts) - count * longest
        offsets = offsets + free * (2 * index + 1) // (2 * count)
    return Text(split, number, split.starts[number] + offsets, longest)


def in_stretches(split: Split, longest: int) -> Split:
    """Cut a split of one document into up to 50 stretches, the units of its standard errors; other
    splits stay as they are."""
    if len(split.lengths) > 1:
        return split
    room = len(split.tokens) // (longest + 1)  # windows in total
    count = max(1, room // max(1, -(-room // FEWEST)))  # stretches of equally many windows
    starts = np.linspace(0, len(split.tokens), count + 1).astype(np.int64)
    digests = np.repeat(split.digests, count)
    return replace(split, starts=starts, digests=digests, groups=None, stretches=True)


def _even(room: np.ndarray, wanted: int) -> int:
    """Return the fewest windows per document that total `wanted`, or the most that fit."""
    candidates = np.arange(1, room.max() + 1)
    enough = np.minimum(room[:, None], candidates).sum(axis=0) >= wanted
    return int(candidates[np.argmax(enough)] if enough.any() else candidates[-1])


def _check_enough(split: Split, fitting: np.ndarray, longest: int) -> None:
    if len(fitting) >= 2:
        return
    lengths = np.sort(split.lengths)[::-1]
    reach = int(lengths[1] if len(lengths) > 1 else lengths[0] // 2) - 1  # one is cut in two
    raise DataError(
        f"{len(fitting)} of {len(lengths)} documents have the {longest + 1} tokens of the longest "
        f"window; at least 2 are needed. Up to length {reach} there are 2: lower the multiples, or "
        "give longer text (data.source, data.path)"
    )


def plan_of(text: Text, length: int, offsets: np.ndarray, first, kept=None) -> Reading:
    """Windows at offsets [W, N] from the starts of the longest ones, where `kept`."""
    kept = np.ones(offsets.shape, bool) if kept is None else kept
    document = np.searchsorted(text.documents, text.document)
    return Reading(
        text,
        length,
        (text.starts[:, None] + offsets)[kept].astype(np.int64),
        np.broadcast_to(document[:, None], offsets.shape)[kept],
        np.broadcast_to(first, offsets.shape)[kept],
    )


def changed(text: Text, length: int, change: Callable[[np.ndarray], np.ndarray]) -> Text:
    """Copy the windows of a length that end where the longest ones end into a text of the same
    documents, and change their tokens [W, length + 1]."""
    places = (text.starts + text.longest - length)[:, None] + np.arange(length + 1)
    copy = gathered(text, places, np.searchsorted(text.documents, text.document))
    tokens = change(copy.split.tokens.reshape(places.shape)).ravel()
    return replace(copy, split=replace(copy.split, tokens=tokens))


def gathered(text: Text, places: np.ndarray, document: np.ndarray) -> Text:
    """Copy the tokens at places of the split, [N, length + 1], into a text of the same documents,
    with a window for each row; `document` [N] ascends."""
    split, size = text.split, places.shape[1]

    def copied(column):
        return None if column is None else np.array(column[places]).ravel()

    copy = replace(
        split,
        tokens=np.array(split.tokens[places]).ravel(),
        starts=np.searchsorted(document, np.arange(len(text.documents) + 1)) * size,
        bytes_of=copied(split.bytes_of),
        answers=copied(split.answers),
        digests=split.digests[text.documents],
        gaps=None,
        groups=None if split.groups is None else split.groups[text.documents],
    )
    starts = np.arange(len(places)) * size
    return replace(text, split=copy, document=document, starts=starts, longest=size - 1)
