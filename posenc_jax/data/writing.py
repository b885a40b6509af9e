"""Write the tokens of a text to disk, without duplicate documents, by split; hashes of files."""

import hashlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from posenc_jax.data import sources, splits, tokenizer
from posenc_jax.runtime.errors import DataError, Interrupted, Stop
from posenc_jax.runtime.files import write_atomically

HASHES_FILE = "hashes.json"  # in the cache folder: size, times, inode and hash of each file
SETTLED_SECONDS = 2.0  # seconds within which a file may change again without a new time


class Hashes:
    """sha256 of files, cached by path, size, times and inode."""

    def __init__(self, cache: Path):
        self.path = cache / HASHES_FILE
        self.known: dict[str, list] = {}
        with suppress(OSError, ValueError):
            self.known = json.loads(self.path.read_text(encoding="utf-8"))
        self.new = False

    def of(self, path: Path) -> str:
        name, stamp = os.path.abspath(path), _stamp(path)
        if self.known.get(name, [])[:-1] == stamp:
            return self.known[name][-1]
        digest = hash_of_file(path)
        if time.time() - max(stamp[1], stamp[2]) / 1e9 > SETTLED_SECONDS and _stamp(path) == stamp:
            self.known[name] = [*stamp, digest]
            self.new = True
        return digest

    def describe(self, path: Path) -> dict:
        return {"path": str(path), "size": path.stat().st_size, "sha256": self.of(path)}

    def total(self, paths: Iterable[Path]):
        """Running sha256 over names and hashes of files, in order of their names."""
        digest = hashlib.sha256()
        for path in sorted(paths):
            digest.update(f"{path.name} {self.of(path)}\n".encode())
        return digest

    def keep(self) -> None:
        """Write new hashes if the cache folder is writable."""
        if self.new and self.path.parent.is_dir() and os.access(self.path.parent, os.W_OK):
            with suppress(Stop):
                write_atomically(self.path, json.dumps(self.known))


@contextmanager
def remembered(cache: Path) -> Iterator[Hashes]:
    hashes = Hashes(cache)
    try:
        yield hashes
    finally:
        hashes.keep()


def hash_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _stamp(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]


SPLITS = ("train", "valid", "choose")
TOKENIZER = "tokenizer.json"  # optional beside prepared tokens
FEW = 5  # with fewer documents the end of each is held out, as whole ones would be too large
GROUPS = "groups.npy"  # of splits whose documents have groups

Encoder = tokenizer.Bytes | tokenizer.Learned


def build(
    folder: Path,
    source: sources.Documents,
    seed: int,
    encoder: Encoder,
    size: float,  # bytes to read; 0: not known
    facts: dict[str, Any],  # further entries of the card
    *,
    quiet: bool,
    stopping: Sequence[str],
) -> None:
    """Write a corpus into a folder, which gets its name only when complete."""
    scratch = folder.parent / f".{folder.name}.building"
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process; this one has the lock
    scratch.mkdir()
    bar = tqdm(
        total=size or None,
        desc=f"tokens of {source.kind()}",
        unit="B",
        unit_scale=True,
        disable=quiet,
    )
    try:
        with bar:
            card = _write(scratch, source, seed, encoder, bar, stopping)
        card |= {"tokenizer_hash": encoder.hash, **facts}
        card["built"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        write_atomically(scratch / "corpus.json", json.dumps(card, indent=1))
        shutil.rmtree(folder, ignore_errors=True)  # an unfinished one, without corpus.json
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _write(
    folder: Path,
    source: sources.Documents,
    seed: int,
    encoder,
    bar,
    stopping: Sequence[str],
    moved: Mapping[bytes, str] | None = None,  # split of documents that override their hash
) -> dict:
    """Write the files of all splits and return their card."""
    dtype = np.dtype(
        np.uint8 if encoder.vocab <= 256 else "<u2" if encoder.vocab <= 65536 else "<u4"
    )
    writers = {name: _Writer(folder, name, dtype) for name in SPLITS}
    round_trip = tokenizer.RoundTrip(encoder)
    documents = _Documents(source, bar, moved or {})
    try:
        parted = documents.parted(source.documents(seed))
        for part in encoder.stream(_tried(parted, round_trip)):
            if stopping:
                raise Interrupted(
                    f"stopped by {stopping[0]} during tokenization; the same command starts it "
                    "again"
                )
            document = part.text
            writers[document.split].add(part)
            bar.update(document.size * part.size / len(document.text))
        written = {name: writer.finish() for name, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.close()
    moved = documents.to_move() if moved is None else None
    if moved:
        for path in folder.iterdir():
            path.unlink()
        bar.reset()
        return _write(folder, source, seed, encoder, bar, stopping, moved)
    if not written["train"]["tokens"]:
        raise DataError(f"no text to train on: {documents.counts} (data.source={source.kind()})")
    card = {
        "vocab": encoder.vocab,
        "dtype": dtype.str,
        "tokenizer": encoder.name,
        "counts": documents.counts,
        "splits": written,
        "lossy": round_trip.card(),
    }
    if documents.cut:
        card["cut"] = documents.cut
    card |= source.card()
    return {"fingerprint": fingerprint_of(folder, card, Hashes(folder))} | card


def _tried(documents, round_trip: tokenizer.RoundTrip) -> Iterator[sources.Document]:
    for document in documents:
        round_trip.see(document.text, document.name)
        yield document


class _Documents:
    """Documents of a text without duplicates, each with its split."""

    def __init__(self, source: sources.Documents, bar, moved: Mapping[bytes, str]):
        self.source, self.bar, self.moved = source, bar, moved
        self.counts = {"documents": 0, "duplicates": 0, "empty": 0}
        self.cut: list[int] = []  # digests of the documents that are in several splits
        self.hashes: set[bytes] = set()  # that decided a split
        valid = 0.0 if source.names_held_out else source.valid_fraction
        self.fractions = valid, source.choose_fraction

    def parted(self, documents: Iterator[sources.Document]) -> Iterator[sources.Document]:
        """All documents, or the parts of each if those without a stated split are few."""
        distinct = self._distinct(documents)
        first: list[sources.Document] = []
        for document in distinct:
            if document.split is not None:
                yield document
                continue
            first.append(document)
            if len(first) == FEW:
                break
        if len(first) == FEW or not (self.source.cuts_few and any(self.fractions)):
            yield from map(self._in_split, itertools.chain(first, distinct))
            return
        for document in first:
            self.cut.append(sources.digest(document.text))
            yield from _cut(document, *self.fractions)

    def to_move(self) -> dict[bytes, str]:
        return splits.moved(self.hashes, *self.fractions)

    def _distinct(self, documents: Iterator[sources.Document]) -> Iterator[sources.Document]:
        seen: set[bytes] = set()
        for document in documents:
            text_hash = splits.hash_of(document.text)
            if document.text and text_hash not in seen:
                seen.add(text_hash)
                self.counts["documents"] += 1
                yield document
                continue
            self.counts["duplicates" if document.text else "empty"] += 1
            self.bar.update(document.size)

    def _in_split(self, document: sources.Document) -> sources.Document:
        if document.split is not None:
            return document
        place = document.text if document.group is None else document.group.encode()
        own = splits.hash_of(place)
        self.hashes.add(own)
        by_hash = splits.split_of(own, *self.fractions)
        return document._replace(split=self.moved.get(own, by_hash))


def _cut(document: sources.Document, valid: float, choose: float) -> Iterator[sources.Document]:
    """Parts of a document, cut at line ends: for training, for tuning, and its end held out."""
    text = document.text
    shares = {"train": 1 - valid - choose, "choose": choose, "valid": valid}
    shares = {split: own for split, own in shares.items() if own}
    start, share = 0, 0.0
    for split, own in shares.items():
        share += own
        is_last = split == list(shares)[-1]
        stop = len(text) if is_last else _line_end(text, round(share * len(text)))
        if stop > start:
            size = document.size * (stop - start) / len(text)
            name = f"{document.name}, from byte {start:,}"
            yield document._replace(name=name, text=text[start:stop], split=split, size=size)
            start = stop


def _line_end(text: bytes, place: int) -> int:
    """End of the last line before a place; if that is far away, of the last character."""
    end = text.rfind(b"\n", 0, place) + 1
    if end > 0.75 * place:
        return end
    while 0 < place < len(text) and text[place] & 0xC0 == 0x80:
        place -= 1
    return place


class _Writer:
    def __init__(self, folder: Path, name: str, dtype: np.dtype):
        self.folder, self.name, self.dtype = folder, name, dtype
        self.streams: dict = {}
        self.starts = [0]
        self.digests: list[int] = []
        self.groups: dict[str, int] = {}  # numbered in order of appearance
        self.group_of: list[int] = []  # group of each document
        self.tokens = self.bytes = 0
        self._write("tokens", np.zeros(0, dtype))

    def add(self, part: tokenizer.Stretch) -> None:
        document = part.text
        self._write("tokens", part.tokens.astype(self.dtype))
        if part.widths is not None and len(part.widths):
            if part.widths.max() > 65535:
                raise DataError(
                    f"{document.name}: a token of {part.widths.max()} bytes; the limit is 65535"
                )
            self._write("bytes", part.widths.astype(np.uint16))
        self.tokens += len(part.tokens)
        if part.ends and self.tokens > self.starts[-1]:
            self._end(document)

    def _end(self, document: sources.Document) -> None:
        if document.answers is not None:
            self._write("answers", document.answers.astype(np.bool_))
        if document.gaps is not None:
            self._write("gaps", document.gaps.astype("<i4"))
        self.starts.append(self.tokens)
        self.digests.append(sources.digest(document.text))
        if document.group is not None:
            self.group_of.append(self.groups.setdefault(document.group, len(self.groups)))
        self.bytes += len(document.text)

    def _write(self, kind: str, values: np.ndarray) -> None:
        if kind not in self.streams:
            self.streams[kind] = (self.folder / f"{self.name}.{kind}").open("wb")
        self.streams[kind].write(values.tobytes())

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()

    def finish(self) -> dict:
        """Write what is known at the end, and describe all of it."""
        starts, digests = np.array(self.starts, np.int64), np.array(self.digests, np.uint64)
        groups = np.array(self.group_of, np.int32) if self.group_of else None
        return save_documents(self.folder, self.name, starts, digests, groups, self.bytes)


def save_documents(
    folder: Path,
    split: str,
    starts: np.ndarray,
    digests: np.ndarray,
    groups: np.ndarray | None,
    size: int,
) -> dict:
    """Write the columns of documents of a split, and count what it holds."""
    np.save(folder / f"{split}.starts.npy", starts)
    np.save(folder / f"{split}.digests.npy", digests)
    if groups is not None:
        np.save(folder / f"{split}.{GROUPS}", groups)
    tokens = int(starts[-1])
    return {
        "documents": len(digests),
        "tokens": tokens,
        "bytes": size,
        "bytes_per_token": size / tokens if tokens else None,
        "longest": int(np.max(np.diff(starts), initial=0)),
    }


def fingerprint_of(folder: Path, card: dict, hashes: Hashes) -> str:
    """Hash of tokens, bytes, documents and their format, independent of their source."""
    apart = ("corpus.json", TOKENIZER, *(f"{split}.{GROUPS}" for split in SPLITS))
    digest = hashes.total(path for path in folder.iterdir() if path.name not in apart)
    read_as = {name: card[name] for name in ("vocab", "dtype")} | {"lossless": lossless(card)}
    digest.update(json.dumps(read_as, sort_keys=True).encode())
    return digest.hexdigest()


def lossless(card: dict) -> bool:
    return card["lossy"]["changed"] == 0
