"""Text to tokens on disk, without duplicate documents, by split."""

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from posenc_jax.data import corpora, sources, splits, tokenizer
from posenc_jax.data.corpora import FORMAT, SPLITS, Corpus, Mixture, Writer
from posenc_jax.data.hashes import Hashes
from posenc_jax.data.sources import Documents, Origin
from posenc_jax.data.sources.mixture import Mixture as MixtureSource
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.data.tokenizer import Encoder
from posenc_jax.runtime.errors import DataError, Interrupted, Stop
from posenc_jax.runtime.files import alone
from posenc_jax.runtime.terminal import warn

FEW = 5  # with fewer documents the end of each is held out, as whole ones would be too large


def prepare_corpora(
    origin: Origin,
    seed: int,
    encoder: Encoder | None = None,
    **how: Any,
) -> Corpus | Mixture:
    """The tokens of an origin, a mixture or not."""
    if not isinstance(origin, MixtureSource):
        assert isinstance(origin, Documents | Tokens)
        return prepare(origin, seed, encoder, **how)
    encoder = encoder or tokenizer.load(origin.tokenizer)
    parts = {name: prepare(part, seed, encoder, **how) for name, part in origin.parts.items()}
    return Mixture(parts, origin.shares, origin.lengths)


def prepare(
    source: Documents | Tokens,
    seed: int,
    encoder: Encoder | None = None,
    *,
    cache: str | None = None,
    quiet: bool = False,
    stopping: Sequence[str] = (),
) -> Corpus:
    """The corpus of a source, from the cache or built into it, with its tokenizer if that is loaded
    already.

    With `cache`, another folder, the source's own is only read. `stopping` is looked at between
    documents: the names of signals that asked to stop.
    """
    if isinstance(source, Tokens):
        corpus = corpora.of_folder(source.tokens)
    else:
        root = corpora.cache_folder(source.cache if cache is None else cache)
        corpus = _cached(source, seed, encoder, root, quiet=quiet, stopping=stopping)
    if not (corpus.lossless or quiet):
        warn(_losses(corpus.card))
    return corpus


def _cached(
    source: Documents,
    seed: int,
    encoder: Encoder | None,
    root: Path,
    *,
    quiet: bool,
    stopping: Sequence[str],
) -> Corpus:
    with Hashes(root) as hashes:
        text = _described(source, seed, encoder or tokenizer.load(source.tokenizer), hashes)
        folder = root / f"{source.kind()}-{text.key}"
        there = corpora.cache_folder(source.cache) / folder.name
        with suppress(OSError, DataError):  # of another machine or person
            return corpora.load(there, corpora.card_of(there), hashes, text.encoder)
        card = corpora.card_of(folder)
        if card is None:
            _make(root)
            with alone(root / f"{folder.name}.lock"):
                card = corpora.card_of(folder)
                if card is None:
                    card = _build(folder, text, quiet=quiet, stopping=stopping)
        return corpora.load(folder, card, hashes, text.encoder)


class _Text(NamedTuple):
    """A text before tokenization."""

    source: Documents
    seed: int
    encoder: Encoder
    identity: dict[str, Any]  # everything its tokens depend on
    files: list[dict]
    size: float  # bytes to read; 0: not known

    @property
    def key(self) -> str:
        named = json.dumps(self.identity, sort_keys=True).encode()
        return hashlib.sha256(named).hexdigest()[:16]


def _described(source: Documents, seed: int, encoder: Encoder, hashes: Hashes) -> _Text:
    listed, held = (
        [
            {"path": str(path), "size": path.stat().st_size, "sha256": hashes.of(path)}
            for path in paths
        ]
        for paths in (source.files(), source.held_out_files())
    )
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
    return _Text(source, seed, encoder, identity, listed + held, size)


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
    except OSError as error:
        raise Stop(
            f"cannot store tokens in {root}: {error}; set data.cache to a writable folder, or "
            "XDG_CACHE_HOME"
        ) from error


def _build(folder: Path, text: _Text, *, quiet: bool, stopping: Sequence[str]) -> dict:
    """Write a corpus into a folder and return its card; this process has the lock."""
    shutil.rmtree(folder, ignore_errors=True)  # an unfinished one, without a card
    bar = tqdm(
        total=text.size or None,
        desc=f"tokens of {text.source.kind()}",
        unit="B",
        unit_scale=True,
        disable=quiet or None,  # None: where there is no terminal
    )
    with corpora.building(folder) as scratch, bar:
        card = _write(scratch, text, bar, stopping)
        card |= {"tokenizer_hash": text.encoder.hash}
        card |= {"identity": text.identity, "sources": text.files}
        return corpora.save_card(scratch, card)


def _write(
    folder: Path,
    text: _Text,
    bar,
    stopping: Sequence[str],
    moved: Mapping[bytes, str] | None = None,  # split of documents that override their hash
) -> dict:
    """Write the files of all splits and return their card."""
    source, encoder = text.source, text.encoder
    dtype = np.dtype(
        np.uint8 if encoder.vocab <= 256 else "<u2" if encoder.vocab <= 65536 else "<u4"
    )
    writers: dict[str | None, Writer] = {name: Writer(folder, name, dtype) for name in SPLITS}
    round_trip = tokenizer.RoundTrip(encoder)
    documents = _Documents(source, bar, moved or {})
    try:
        parted = documents.parted(source.documents(text.seed))
        for part in _long_enough(encoder.stream(_tried(parted, round_trip)), source, documents):
            if stopping:
                raise Interrupted(
                    f"stopped by {stopping[0]} during tokenization; the same command starts it "
                    "again"
                )
            document = part.text
            _add(writers[document.split], part)
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
        return _write(folder, text, bar, stopping, moved)
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
    return card | source.card()


def _tried(documents, round_trip: tokenizer.RoundTrip) -> Iterator[sources.Document]:
    for document in documents:
        round_trip.see(document.text, document.name)
        yield document


def _long_enough(
    parts: Iterator[tokenizer.Stretch], source: sources.Documents, documents: "_Documents"
) -> Iterator[tokenizer.Stretch]:
    """The parts of documents that have as many tokens as are asked for."""
    held: list[tokenizer.Stretch] = []
    for part in parts:
        held.append(part)
        if part.ends and sum(len(one.tokens) for one in held) < source.shortest:
            documents.counts["short"] = documents.counts.get("short", 0) + 1
            held = []
        if part.ends or not source.shortest:
            yield from held
            held = []


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


def _add(writer: Writer, part: tokenizer.Stretch) -> None:
    document = part.text
    if part.widths is not None and (widest := part.widths.max(initial=0)) > 65535:
        raise DataError(f"{document.name}: a token of {widest} bytes; the limit is 65535")
    writer.add(part.tokens, part.widths)
    if part.ends:
        digest, size = sources.digest(document.text), len(document.text)
        writer.end(digest, size, document.group, document.answers, document.gaps)
