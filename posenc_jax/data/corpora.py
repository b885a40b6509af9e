"""Tokens on disk: their format, read by memory map, and their tokenizer."""

import hashlib
import json
import shutil
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from posenc_jax.data import tokenizer
from posenc_jax.data.hashes import Hashes
from posenc_jax.data.sources import Origin, Text
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.data.tokenizer import Encoder
from posenc_jax.runtime.backend import cache_home
from posenc_jax.runtime.errors import DataError
from posenc_jax.runtime.files import expanded, read_json, write_atomically

FORMAT = 6  # of the files of a corpus and its splits; folders with another number are not read
SPLITS = ("train", "valid", "choose")
CARD, TOKENIZER = "corpus.json", "tokenizer.json"  # the latter only beside prepared tokens
GROUPS = "groups.npy"  # of splits whose documents have groups
OF_TOKENS = "tokens", "bytes_of", "answers", "gaps"  # columns of a split, a value for each token


@dataclass(frozen=True)
class Split:
    """Concatenated documents of a split."""

    tokens: np.ndarray  # [N], a memory map
    starts: np.ndarray  # [documents + 1], start of each document, and the end
    bytes_of: np.ndarray | None  # [N], bytes of text of each token; None: one each
    answers: np.ndarray | None  # [N], mask of answers; None: no answers
    digests: np.ndarray  # [documents], uint64, `sources.digest` of each text
    lossless: bool  # False if tokens lose text, so that bits per byte are undefined
    gaps: np.ndarray | None = None  # [N], distance in tokens from question to setting
    chance: float | None = None  # accuracy of guessing; None: not known
    groups: np.ndarray | None = None  # [documents], groups held out together; None: each alone
    task: str | None = None  # task that generated the text, if any
    stretches: bool = False  # its documents are stretches of one

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def in_longer(self, length: int) -> float:
        """Share of its tokens in documents longer than this."""
        return float(self.lengths[self.lengths > length].sum() / max(1, len(self.tokens)))

    def without(self, digests: np.ndarray) -> np.ndarray:  # [documents], bool
        """Mask of the documents whose digest is not among these."""
        return ~np.isin(self.digests, digests)


@dataclass(frozen=True)
class Corpus:
    folder: Path
    card: dict  # the sidecar: sources, counts, hashes
    train: Split
    valid: Split
    choose: Split  # neither trained on nor held out; empty without data.choose_fraction
    own_encoder: Encoder | None = None  # None: the tokenizer in its folder

    @cached_property
    def encoder(self) -> Encoder | tokenizer.Unavailable:
        return self.own_encoder or _encoder_in(self.folder, self.card)

    @property
    def fingerprint(self) -> str:
        return self.card["fingerprint"]

    @property
    def lengths(self) -> dict[str, int]:
        """Of rows, as in a mixture; here that of training."""
        return {}

    @property
    def parts(self) -> dict[str, "Corpus"]:
        """Corpora by name, as in a mixture; here one without a name."""
        return {"": self}

    def in_longer(self, length: int) -> float:
        """Share of the training tokens in documents longer than this."""
        return self.train.in_longer(length)

    @property
    def digests(self) -> np.ndarray:
        """Digests of training documents, including those trained on in part."""
        cut = np.array(self.card.get("cut", []), np.uint64)
        return np.concatenate([self.train.digests, cut])

    def whole(self) -> Split:
        """All documents, as one split."""
        some = [s for s in (self.train, self.valid, self.choose) if len(s.lengths)]

        def joined(name: str) -> np.ndarray | None:
            columns = [getattr(split, name) for split in some]
            return None if columns[0] is None else np.concatenate(columns)

        starts = np.concatenate([[0], np.cumsum(np.concatenate([split.lengths for split in some]))])
        own = [split.groups for split in some if split.groups is not None]
        groups = None  # also if the file of one split is missing
        if len(own) == len(some):  # splits share no group
            before = np.cumsum([0, *(numbers.max() + 1 for numbers in own[:-1])])
            groups = np.concatenate([n + first for n, first in zip(own, before, strict=True)])
        return replace(
            some[0],
            starts=starts,
            digests=joined("digests"),
            groups=groups,
            **{name: joined(name) for name in OF_TOKENS},
        )

    @property
    def vocab(self) -> int:
        return self.card["vocab"]

    @property
    def lossless(self) -> bool:
        """True if all documents tried decoded unchanged."""
        return _lossless(self.card)


@dataclass(frozen=True)
class Mixture:
    """Corpora of a mixture by name, their shares of the training tokens, and the lengths of their
    rows where they are shorter than those of training."""

    parts: Mapping[str, Corpus]
    shares: Mapping[str, float]
    lengths: Mapping[str, int]

    @property
    def first(self) -> Corpus:
        return next(iter(self.parts.values()))

    @property
    def encoder(self) -> Encoder | tokenizer.Unavailable:
        return self.first.encoder

    @cached_property
    def fingerprint(self) -> str:
        made = [[name, self.shares[name], part.fingerprint] for name, part in self.parts.items()]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()

    @property
    def vocab(self) -> int:
        return max(part.vocab for part in self.parts.values())

    @property
    def lossless(self) -> bool:
        return all(part.lossless for part in self.parts.values())

    def in_longer(self, length: int) -> float:
        """Share of the training tokens in documents longer than this."""
        shares = [self.shares[name] * part.in_longer(length) for name, part in self.parts.items()]
        return sum(shares) / sum(self.shares.values())

    @property
    def digests(self) -> np.ndarray:
        """Digests of training documents."""
        return np.concatenate([part.digests for part in self.parts.values()])

    @cached_property
    def card(self) -> dict[str, Any]:
        """Counts of documents and tokens, and bytes per token, over all parts."""
        splits = {}
        for split in SPLITS:
            own = [part.card["splits"][split] for part in self.parts.values()]
            total = {name: sum(one[name] for one in own) for name in ("documents", "tokens")}
            size = sum(one["bytes"] for one in own)
            splits[split] = total | {"bytes_per_token": size / total["tokens"] if size else None}
        return {"splits": splits}


def cache_folder(named: str) -> Path:
    return expanded(named) if named else cache_home() / "posenc-jax"


def of_folder(folder: str) -> Corpus:
    """Load prepared tokens from a folder."""
    place = expanded(folder)
    remedy = "write it again: scripts/prepare_data.py --tokens_out"
    card = card_of(place)
    if card is not None and card.get("format") != FORMAT:
        raise DataError(
            f"{folder} has format {card.get('format')!r}, and this version reads {FORMAT}; {remedy}"
        )
    with Hashes(cache_folder("")) as hashes:
        return load(place, card, hashes, remedy=remedy)


def load(
    folder: Path,
    card: dict | None,
    hashes: Hashes,
    encoder: Encoder | None = None,
    remedy: str = "delete it to have it rebuilt",
) -> Corpus:
    same = False
    with suppress(KeyError, TypeError):  # of a damaged card
        same = card is not None and _fingerprint(folder, card, hashes) == card["fingerprint"]
    if card is not None and same:
        with suppress(OSError, ValueError, EOFError):  # of groups, which the fingerprint leaves out
            splits = [_load_split(folder, name, card) for name in SPLITS]
            if all(one.groups is None or len(one.groups) == len(one.digests) for one in splits):
                return Corpus(folder, card, *splits, own_encoder=encoder)
    raise DataError(f"{folder} has changed since it was written; {remedy}")


def card_of(folder: Path) -> dict | None:
    """Read corpus.json, which is written last; None if the corpus is incomplete."""
    try:
        card = read_json(folder / CARD)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return card if isinstance(card, dict) and "fingerprint" in card else None


def _load_split(folder: Path, name: str, card: dict) -> Split:
    def column(kind, kind_dtype):
        path = folder / f"{name}.{kind}"
        if not path.exists():
            return None
        if not path.stat().st_size:
            return np.zeros(0, kind_dtype)
        return np.memmap(path, kind_dtype, mode="r")

    def array(kind):
        return np.load(folder / f"{name}.{kind}", allow_pickle=False)

    tokens = column("tokens", np.dtype(card["dtype"]))
    assert tokens is not None
    return Split(
        tokens,
        array("starts.npy"),
        column("bytes", np.uint16),
        column("answers", np.bool_),
        array("digests.npy"),
        _lossless(card),
        column("gaps", np.dtype("<i4")),
        card.get("chance"),
        array(GROUPS) if (folder / f"{name}.{GROUPS}").exists() else None,
        card.get("task"),
    )


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A scratch folder for the files of a corpus, which gets its name only when complete."""
    scratch = folder.with_name(f".{folder.name}.building")
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process
        scratch.mkdir(parents=True)
        yield scratch
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Writer:
    """The files of a split, written document by document."""

    def __init__(self, folder: Path, split: str, dtype: np.dtype):
        self.folder, self.split, self.dtype = folder, split, dtype
        self.streams: dict[str, BinaryIO] = {}
        self.starts = [0]
        self.digests: list[int] = []
        self.groups: dict[Hashable, int] = {}  # numbered in order of appearance
        self.group_of: list[int] = []  # group of each document
        self.tokens = self.bytes = 0
        self._write("tokens", np.zeros(0, dtype))

    def add(self, tokens: np.ndarray, bytes_of: np.ndarray | None) -> None:
        """Write tokens of a document."""
        self._write("tokens", tokens.astype(self.dtype))
        if bytes_of is not None and len(bytes_of):
            self._write("bytes", bytes_of.astype(np.uint16))
        self.tokens += len(tokens)

    def end(
        self,
        digest: int,
        size: int,  # bytes of its text
        group: Hashable | None,
        answers: np.ndarray | None,
        gaps: np.ndarray | None,
    ) -> None:
        """End a document; one without tokens is left out."""
        if self.tokens == self.starts[-1]:
            return
        if answers is not None:
            self._write("answers", answers.astype(np.bool_))
        if gaps is not None:
            self._write("gaps", gaps.astype("<i4"))
        self.starts.append(self.tokens)
        self.digests.append(digest)
        if group is not None:
            self.group_of.append(self.groups.setdefault(group, len(self.groups)))
        self.bytes += size

    def _write(self, kind: str, values: np.ndarray) -> None:
        if kind not in self.streams:
            self.streams[kind] = (self.folder / f"{self.split}.{kind}").open("wb")
        self.streams[kind].write(values.tobytes())

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()

    def finish(self) -> dict:
        """Write what is known at the end, and count what the split holds."""
        starts, path = np.array(self.starts, np.int64), self.folder / self.split
        np.save(f"{path}.starts.npy", starts)
        np.save(f"{path}.digests.npy", np.array(self.digests, np.uint64))
        if self.group_of:
            np.save(f"{path}.{GROUPS}", np.array(self.group_of, np.int32))
        return {
            "documents": len(self.digests),
            "tokens": self.tokens,
            "bytes": self.bytes,
            "bytes_per_token": self.bytes / self.tokens if self.tokens else None,
            "longest": int(np.max(np.diff(starts), initial=0)),
        }


def save_card(folder: Path, card: dict) -> dict:
    """Write the card of a folder of tokens, with its fingerprint and the time."""
    built = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    card = {"fingerprint": _fingerprint(folder, card, Hashes(folder))} | card | {"built": built}
    write_atomically(folder / CARD, json.dumps(card, indent=1))
    return card


def _fingerprint(folder: Path, card: dict, hashes: Hashes) -> str:
    """Hash of tokens, bytes, documents and their format, independent of their source."""
    apart = (CARD, TOKENIZER, *(f"{split}.{GROUPS}" for split in SPLITS))
    digest = hashes.total(path for path in folder.iterdir() if path.name not in apart)
    read_as = {name: card[name] for name in ("vocab", "dtype")} | {"lossless": _lossless(card)}
    digest.update(json.dumps(read_as, sort_keys=True).encode())
    return digest.hexdigest()


def _lossless(card: dict) -> bool:
    return card["lossy"]["changed"] == 0


def encoder_of(origin: Origin) -> Encoder | tokenizer.Unavailable:
    """The tokenizer of a text; that of prepared tokens may be unavailable."""
    if isinstance(origin, Text):
        return tokenizer.load(origin.tokenizer)
    assert isinstance(origin, Tokens)
    card = card_of(origin.folder)
    if card is None:
        raise DataError(f"{origin.tokens} holds no prepared tokens (data.tokens)")
    return _encoder_in(origin.folder, card)


def _encoder_in(folder: Path, card: dict) -> Encoder | tokenizer.Unavailable:
    """The tokenizer of prepared tokens, which their folder should hold."""
    name, vocab, hash = (card[fact] for fact in ("tokenizer", "vocab", "tokenizer_hash"))
    if hash == tokenizer.Bytes.hash:
        return tokenizer.Bytes()
    path = folder / TOKENIZER
    try:
        if not path.is_file():
            raise DataError(
                f"{folder} holds tokens of {name} and no {TOKENIZER}; put that file there, or take "
                "tokens made beforehand (data.tokens)"
            )
        encoder = tokenizer.load(str(path))
        if encoder.hash != hash:
            raise DataError(f"{path} is not the tokenizer of the tokens in its folder")
        return encoder
    except (DataError, ImportError) as error:
        return tokenizer.Unavailable(name, vocab, hash, str(error))
