"""Tokens on disk with their tokenizer, written once per source, then read by memory map."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.data import tokenizer
from posenc_jax.data.sources import Documents, Origin, Text
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.data.writing import (
    GROUPS,
    SPLITS,
    TOKENIZER,
    Encoder,
    Hashes,
    build,
    fingerprint_of,
    lossless,
    remembered,
)
from posenc_jax.runtime.backend import cache_home
from posenc_jax.runtime.errors import DataError, Stop
from posenc_jax.runtime.files import alone
from posenc_jax.runtime.terminal import warn

FORMAT = 5  # of the files below; another number means another cache
OF_TOKENS = "tokens", "bytes_of", "answers", "gaps"  # columns of a split, a value for each token
WIDTHS = "widths.npy"  # beside prepared tokens: usual bytes of each token; `odd` has exceptions


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

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

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

    @property
    def fingerprint(self) -> str:
        return self.card["fingerprint"]

    @property
    def key(self) -> str | None:
        """Cache key of the text; None for prepared tokens."""
        return key_of(self.card["identity"]) if "identity" in self.card else None

    @property
    def parts(self) -> dict[str, "Corpus"]:
        """Corpora by name, as in a mixture; here one without a name."""
        return {"": self}

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
        return lossless(self.card)


def prepare(
    source: Documents | Tokens, seed: int, *, quiet: bool = False, stopping: Sequence[str] = ()
) -> Corpus:
    """The corpus of a source, from the cache or built into it.

    `stopping` is looked at between documents: the names of signals that asked to stop.
    """
    if isinstance(source, Tokens):
        corpus = of_folder(source.tokens)
    else:
        corpus = _cached(source, seed, quiet=quiet, stopping=stopping)
    if not (corpus.lossless or quiet):
        warn(_losses(corpus.card))
    return corpus


def _cached(source: Documents, seed: int, *, quiet: bool, stopping: Sequence[str]) -> Corpus:
    root = cache_folder(source.cache)
    with remembered(root) as hashes:
        text = described(source, seed, hashes)
        folder = root / f"{source.kind()}-{text.key}"
        if card_of(folder) is None:
            _make(root)
            with alone(root / f"{folder.name}.lock"):
                if card_of(folder) is None:
                    facts = {"identity": text.identity, "sources": text.files}
                    how = {"quiet": quiet, "stopping": stopping}
                    build(folder, source, seed, text.encoder, text.size, facts, **how)
        return load(folder, hashes=hashes)


class Described(NamedTuple):
    """A text before tokenization."""

    identity: dict[str, Any]  # everything its tokens depend on
    files: list[dict]
    encoder: Encoder
    size: float  # bytes to read; 0: not known

    @property
    def key(self) -> str:
        return key_of(self.identity)


def key_of(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def described(source: Documents, seed: int, hashes: Hashes) -> Described:
    encoder = tokenizer.load(source.tokenizer)
    listed = [hashes.describe(path) for path in source.files()]
    held = [hashes.describe(path) for path in source.held_out_files()]
    size = sum(entry["size"] for entry in listed + held) if source.size is None else source.size
    identity = {
        "format": FORMAT,
        "source": source.kind(),
        "files": [[entry["size"], entry["sha256"]] for entry in listed],
        "tokenizer": encoder.hash,
        "valid_fraction": source.valid_fraction,
        **source.identity(seed),
    }
    if source.choose_fraction:
        identity["choose_fraction"] = source.choose_fraction
    if held:
        identity["held_out"] = [[entry["size"], entry["sha256"]] for entry in held]
    return Described(identity, listed + held, encoder, size)


def of_folder(folder: str) -> Corpus:
    """Load prepared tokens from a folder."""
    remedy = "write it again: scripts/prepare_data.py --tokens_out"
    with remembered(cache_folder("")) as hashes:
        return load(Path(folder).expanduser(), remedy, hashes)


def load(
    folder: Path, remedy: str = "delete it to have it rebuilt", hashes: Hashes | None = None
) -> Corpus:
    card = card_of(folder)
    hashes = hashes or Hashes(folder.parent)
    if card is not None and fingerprint_of(folder, card, hashes) == card["fingerprint"]:
        with suppress(OSError, ValueError, EOFError):  # of groups, which the fingerprint leaves out
            splits = [_load_split(folder, name, card) for name in SPLITS]
            if all(one.groups is None or len(one.groups) == len(one.digests) for one in splits):
                return Corpus(folder, card, *splits)
    raise DataError(f"{folder} has changed since it was written; {remedy}")


def card_of(folder: Path) -> dict | None:
    """Read corpus.json, which is written last; None if the corpus is incomplete."""
    try:
        return json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _losses(card: dict) -> str:
    lossy = card["lossy"]
    missing = ""
    if lossy["characters"]:
        examples = " and ".join(map(repr, lossy["examples"]))
        missing = f", without {lossy['characters']:,} of their characters, such as {examples}"
    return (
        f"the tokenizer {card['tokenizer']} loses text: {lossy['changed']} of the first "
        f"{lossy['documents']} documents decode to other text{missing}. Bits per byte are omitted; "
        "losses per token are valid"
    )


def _make(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK):
            raise PermissionError(f"no permission to write in {root}")
    except OSError as error:
        raise Stop(
            f"cannot store tokens in {root}: {error}; set data.cache to a writable folder"
        ) from error


def cache_folder(named: str) -> Path:
    if named:
        return Path(named).expanduser()
    return cache_home() / "posenc-jax"


def _load_split(folder: Path, name: str, card: dict) -> Split:
    def column(kind, kind_dtype):
        path = folder / f"{name}.{kind}"
        if not path.exists():
            return None
        if not path.stat().st_size:
            return np.zeros(0, kind_dtype)
        return np.memmap(path, kind_dtype, mode="r")

    tokens = column("tokens", np.dtype(card["dtype"]))
    assert tokens is not None
    starts, digests = (
        np.load(folder / f"{name}.{kind}.npy", allow_pickle=False) for kind in ("starts", "digests")
    )
    groups = folder / f"{name}.{GROUPS}"
    widths = column("bytes", np.uint16)
    if (folder / WIDTHS).exists():
        odd = np.load(folder / f"{name}.odd.npy", allow_pickle=False)
        widths = np.load(folder / WIDTHS, allow_pickle=False)[tokens]
        widths[odd[:, 0]] = odd[:, 1]
    return Split(
        tokens,
        starts,
        widths,
        column("answers", np.bool_),
        digests,
        lossless(card),
        column("gaps", np.dtype("<i4")),
        card.get("chance"),
        np.load(groups, allow_pickle=False) if groups.exists() else None,
        card.get("task"),
    )


def encoder_of(origin: Origin) -> Encoder | tokenizer.Unavailable:
    """The tokenizer of a text; that of prepared tokens may be unavailable."""
    if isinstance(origin, Text):
        return tokenizer.load(origin.tokenizer)
    assert isinstance(origin, Tokens)
    card = card_of(origin.folder)
    if card is None:
        raise DataError(f"{origin.tokens} holds no prepared tokens (data.tokens)")
    if card["tokenizer_hash"] == tokenizer.Bytes.hash:
        return tokenizer.Bytes()
    try:
        return _beside(origin, card)
    except DataError as error:
        name, vocab, hash = (card[fact] for fact in ("tokenizer", "vocab", "tokenizer_hash"))
        return tokenizer.Unavailable(name, vocab, hash, str(error))


def _beside(origin: Tokens, card: dict) -> Encoder:
    """The tokenizer in the folder of its tokens."""
    path = origin.folder / TOKENIZER
    if not path.is_file():
        raise DataError(
            f"{origin.tokens} holds tokens of {card['tokenizer']} and no {TOKENIZER}; put that "
            "file there, or take tokens made beforehand (data.tokens)"
        )
    encoder = tokenizer.load(str(path))
    if encoder.hash != card["tokenizer_hash"]:
        raise DataError(f"{path} is not the tokenizer of the tokens in its folder")
    return encoder
