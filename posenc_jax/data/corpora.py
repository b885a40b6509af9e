"""Tokens on disk, written once for a source and a tokenizer, then read by memory map."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from posenc_jax.backend import cache_home
from posenc_jax.data import sources, tasks, tokenizer
from posenc_jax.data.splits import hash_of, split_of
from posenc_jax.errors import DataError, Interrupted, Stop
from posenc_jax.files import alone
from posenc_jax.registry import probes
from posenc_jax.terminal import warn

FORMAT = 3  # of the files below; another number means another cache
SPLITS = ("train", "valid", "choose")
TOKENIZER = "tokenizer.json"  # beside prepared tokens, which are readable without it
WIDTHS = "widths.npy"  # beside prepared tokens: usual bytes of each token; `odd` has exceptions
# Required keys of corpus.json; a file without them is rebuilt.
CARD: dict[str, Any] = {
    "fingerprint": str,
    "vocab": int,
    "dtype": str,
    "tokenizer": str,
    "counts": dict,
    "lossy": {"documents": int, "changed": int, "characters": int, "examples": list},
    "splits": {
        name: {"documents": int, "tokens": int, "bytes_per_token": object} for name in SPLITS
    },
}


@dataclass(frozen=True)
class Split:
    """The documents of a split, one after another."""

    tokens: np.ndarray  # [N], a memory map
    starts: np.ndarray  # [documents + 1], where each document begins, and the end
    bytes_of: np.ndarray | None  # [N], bytes of text each token stands for; None: one each
    answers: np.ndarray | None  # [N], which tokens are answers; None: there are none
    digests: np.ndarray  # [documents], uint64, `sources.digest` of each document's text
    lossless: bool  # whether tokens hold all of the text; if not, bits per byte mean nothing
    gaps: np.ndarray | None = None  # [N], how many tokens before its question an answer stands
    chance: float | None = None  # accuracy without having seen what answers; None: not known

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def without(self, digests: np.ndarray) -> np.ndarray:  # [documents], bool
        """Mask of the documents that have none of these digests."""
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
    def parts(self) -> dict[str, "Corpus"]:
        """The corpora of a mixture by name; this one alone."""
        return {"": self}

    @property
    def digests(self) -> np.ndarray:
        """Digests of the documents that are trained on."""
        return self.train.digests

    @cached_property
    def fingerprint_1(self) -> str:
        """The fingerprint of format 1 runs, over the files of two splits and without the card."""
        kinds = ("answers", "bytes", "starts.npy", "tokens")
        paths = [self.folder / f"{name}.{kind}" for name in ("train", "valid") for kind in kinds]
        return _files_hash(path for path in paths if path.exists()).hexdigest()

    def is_that_of(self, card: Mapping[str, Any]) -> bool:
        """Whether this is the text named on the card of a run's checkpoint."""
        return card["data"] == (self.fingerprint if card.get("format") else self.fingerprint_1)

    def whole(self) -> Split:
        """The documents of all splits."""
        some = [s for s in (self.train, self.valid, self.choose) if len(s.lengths)]
        if len(some) == 1:
            return some[0]

        def joined(columns: list) -> np.ndarray | None:
            there = [column for column in columns if column is not None]
            return np.concatenate(there) if there else None

        lengths = np.concatenate([split.lengths for split in some])
        return Split(
            np.concatenate([split.tokens for split in some]),
            np.concatenate([[0], np.cumsum(lengths)]),
            joined([split.bytes_of for split in some]),
            joined([split.answers for split in some]),
            np.concatenate([split.digests for split in some]),
            self.lossless,
            joined([split.gaps for split in some]),
            some[0].chance,
        )

    @property
    def vocab(self) -> int:
        return self.card["vocab"]

    @property
    def lossless(self) -> bool:
        """Whether all documents tried came back from their tokens unchanged."""
        return _lossless(self.card)


def prepare(
    data,
    seed: int,
    length: int | None = None,
    *,
    quiet: bool = False,
    stopping: Sequence[str] = (),
) -> Corpus:
    """The corpus that a configuration's `data` describes, from the cache or built into it.

    `length` is L of the run, which tasks that ask beyond it must know. `stopping` is looked at
    between documents: the names of signals that asked to stop.
    """
    if data.tokens:
        corpus = prepared(data.tokens)
        if not (corpus.lossless or quiet):
            warn(_losses(corpus.card))
        return corpus
    encoder = tokenizer.load(data.tokenizer)
    listed = [_describe(path) for path in sources.files(data)]
    identity = {
        "format": FORMAT,
        "source": data.source,
        "files": [[entry["size"], entry["sha256"]] for entry in listed],
        "tokenizer": encoder.hash,
        "valid_fraction": data.valid_fraction,
    }
    if data.choose_fraction:
        identity["choose_fraction"] = data.choose_fraction
    if data.source == "stdlib" and data.hold_out == "package":
        identity["hold_out"] = data.hold_out
    if data.source == "jsonl":
        identity["field"] = data.field
    if data.source == "hub":
        identity |= {"path": data.path, "split": data.split, "field": data.field}
        identity["revision"] = sources.revision(data)
    if data.source == "synthetic":
        identity |= {"task": data.task, "documents": data.documents, "seed": seed}
        if data.task in probes():
            identity |= {name: data[name] for name in sorted(tasks.options(data.task))}
            identity |= {"train_length": length, "tests": tasks.TESTS, "version": tasks.VERSION}
        else:
            identity["document_length"] = data.document_length
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    root = cache_folder(data.cache)
    folder = root / f"{data.source}-{key}"
    if card_of(folder) is None:
        _make(root)
        with alone(root / f"{folder.name}.lock"):
            if card_of(folder) is None:
                _build(folder, data, seed, length, encoder, listed, identity, quiet, stopping)
    corpus = load(folder)
    if not (corpus.lossless or quiet):
        warn(_losses(corpus.card))
    return corpus


def prepared(folder: str) -> Corpus:
    """Load prepared tokens from the folder that a configuration names."""
    return load(Path(folder).expanduser(), "write it again: scripts/prepare_data.py --tokens_out")


def load(folder: Path, remedy: str = "delete it, to be made again") -> Corpus:
    card = card_of(folder)
    if card is None or fingerprint_of(folder, card) != card["fingerprint"]:
        raise DataError(f"{folder} is not what was written there; {remedy}")
    return Corpus(folder, card, *(_load_split(folder, name, card) for name in SPLITS))


def card_of(folder: Path) -> dict | None:
    """Read corpus.json, which is written last: a corpus without it is incomplete."""
    try:
        card = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return card if _shaped(card, CARD) else None


def _shaped(value, shape) -> bool:
    if not isinstance(shape, dict):
        return isinstance(value, shape)
    return isinstance(value, dict) and all(
        name in value and _shaped(value[name], part) for name, part in shape.items()
    )


def _lossless(card: dict) -> bool:
    return card["lossy"]["changed"] == 0


def _losses(card: dict) -> str:
    lossy = card["lossy"]
    missing = ""
    if lossy["characters"]:
        examples = " and ".join(map(repr, lossy["examples"]))
        missing = f", without {lossy['characters']:,} of their characters, such as {examples}"
    return (
        f"the tokenizer {card['tokenizer']} does not give the text back: of its first "
        f"{lossy['documents']} documents {lossy['changed']} come back changed{missing}. Bits per "
        "byte would be meaningless and are omitted; losses per token are valid"
    )


def _make(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK):
            raise PermissionError(f"no right to write in {root}")
    except OSError as error:
        raise Stop(
            f"cannot keep tokens in {root}: {error}; name a folder that can be written: data.cache"
        ) from error


def cache_folder(named: str) -> Path:
    if named:
        return Path(named).expanduser()
    return cache_home() / "posenc-jax"


def _describe(path: Path) -> dict:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return {"path": str(path), "size": path.stat().st_size, "sha256": digest.hexdigest()}


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
        _lossless(card),
        column("gaps", np.dtype("<i4")),
        card.get("chance"),
    )


def _build(folder, data, seed, length, encoder, listed, identity, quiet, stopping) -> None:
    scratch = folder.parent / f".{folder.name}.building"
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process; the lock is ours
    scratch.mkdir()
    try:
        total = sum(entry["size"] for entry in listed) or None
        bar = tqdm(
            total=None if data.source != "stdlib" and data.source != "text" else total,
            desc=f"tokens of {data.source}",
            unit="B",
            unit_scale=True,
            disable=quiet,
        )
        with bar:
            card = _write(scratch, data, seed, length, encoder, bar, stopping)
        card |= {
            "tokenizer_hash": encoder.hash,
            "identity": identity,
            "sources": listed,
            "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with (scratch / "corpus.json").open("w", encoding="utf-8") as stream:
            stream.write(json.dumps(card, indent=1))
            stream.flush()
            os.fsync(stream.fileno())
        shutil.rmtree(folder, ignore_errors=True)  # an unfinished one, without corpus.json
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _write(
    folder: Path, data, seed: int, length: int | None, encoder, bar, stopping: Sequence[str]
) -> dict:
    """The files of all splits; what the card says of them."""
    dtype = np.dtype(
        np.uint8 if encoder.vocab <= 256 else "<u2" if encoder.vocab <= 65536 else "<u4"
    )
    writers = {name: _Writer(folder, name, dtype) for name in SPLITS}
    round_trip = tokenizer.RoundTrip(encoder)
    seen: set[bytes] = set()
    counts = {"documents": 0, "duplicates": 0, "empty": 0}
    try:
        for document in sources.documents(data, seed, length):
            if stopping:
                raise Interrupted(
                    f"stopped by {stopping[0]} while the text was made into tokens; the same "
                    "command begins with that again"
                )
            bar.update(len(document.text))
            text_hash = hash_of(document.text)
            if not document.text:
                counts["empty"] += 1
            elif text_hash in seen:
                counts["duplicates"] += 1
            else:
                seen.add(text_hash)
                counts["documents"] += 1
                round_trip.see(document.text, document.name)
                place = hash_of(document.group.encode()) if document.group else text_hash
                chosen = split_of(place, data.valid_fraction, data.choose_fraction)
                split = document.split or chosen
                writers[split].add(document, encoder)
        splits = {name: writer.close() for name, writer in writers.items()}
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise
    if not splits["train"]["tokens"]:
        raise DataError(f"no text to train on: {counts} (data.source={data.source})")
    card = {
        "vocab": encoder.vocab,
        "dtype": dtype.str,
        "tokenizer": encoder.name,
        "counts": counts,
        "splits": splits,
        "lossy": round_trip.card(),
    }
    if data.source == "synthetic" and data.task in probes():
        card["chance"] = tasks.of(data.task).chance
    return {"fingerprint": fingerprint_of(folder, card)} | card


class _Writer:
    def __init__(self, folder: Path, name: str, dtype: np.dtype):
        self.folder, self.name, self.dtype = folder, name, dtype
        self.streams: dict = {}
        self.starts = [0]
        self.digests: list[int] = []
        self.bytes = 0
        self._write("tokens", np.zeros(0, dtype))

    def add(self, document: sources.Document, encoder) -> None:
        tokens, widths = encoder.encode(document.text, document.name)
        if not len(tokens):
            return
        self._write("tokens", tokens.astype(self.dtype))
        if encoder.vocab > 256 or not isinstance(encoder, tokenizer.Bytes):
            if widths.max() > 65535:
                raise DataError(f"{document.name}: one token stands for {widths.max()} bytes")
            self._write("bytes", widths.astype(np.uint16))
        if document.answers is not None:
            if len(document.answers) != len(tokens):
                raise DataError("synthetic tasks mark bytes; use data.tokenizer=bytes")
            self._write("answers", document.answers.astype(np.bool_))
        if document.gaps is not None:
            self._write("gaps", document.gaps.astype("<i4"))
        self.starts.append(self.starts[-1] + len(tokens))
        self.digests.append(sources.digest(document.text))
        self.bytes += len(document.text)

    def _write(self, kind: str, values: np.ndarray) -> None:
        if kind not in self.streams:
            self.streams[kind] = (self.folder / f"{self.name}.{kind}").open("wb")
        self.streams[kind].write(values.tobytes())

    def abandon(self) -> None:
        for stream in self.streams.values():
            stream.close()

    def close(self) -> dict:
        for stream in self.streams.values():
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
        self._save("starts", np.array(self.starts, np.int64))
        self._save("digests", np.array(self.digests, np.uint64))
        tokens = self.starts[-1]
        return {
            "documents": len(self.starts) - 1,
            "tokens": tokens,
            "bytes": self.bytes,
            "bytes_per_token": self.bytes / tokens if tokens else None,
            "longest": int(np.max(np.diff(self.starts), initial=0)),
        }

    def _save(self, kind: str, values: np.ndarray) -> None:
        with (self.folder / f"{self.name}.{kind}.npy").open("wb") as stream:
            np.save(stream, values)
            stream.flush()
            os.fsync(stream.fileno())


def fingerprint_of(folder: Path, card: dict) -> str:
    """Hash of tokens, bytes, documents and how they are read, whatever they were made from."""
    apart = ("corpus.json", TOKENIZER)
    digest = _files_hash(path for path in folder.iterdir() if path.name not in apart)
    read_as = {name: card[name] for name in ("vocab", "dtype")} | {"lossless": _lossless(card)}
    digest.update(json.dumps(read_as, sort_keys=True).encode())
    return digest.hexdigest()


def _files_hash(paths: Iterable[Path]):
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.name} {_describe(path)['sha256']}\n".encode())
    return digest
