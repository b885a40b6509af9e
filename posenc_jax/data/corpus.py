"""Tokens on disk: written once for a source and a tokenizer, then read by memory map."""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from posenc_jax.data import sources, tokenizer
from posenc_jax.exits import DataError, Interrupted

FORMAT = 2  # of the files below; another number is another cache
SPLITS = ("train", "valid")


@dataclass(frozen=True)
class Split:
    """The documents of a split, one after another."""

    tokens: np.ndarray  # [N], a memory map
    starts: np.ndarray  # [documents + 1], where each document begins, and the end
    bytes_of: np.ndarray | None  # [N], bytes of text each token stands for; None: one each
    answers: np.ndarray | None  # [N], which tokens are answers; None: there are none

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)


@dataclass(frozen=True)
class Corpus:
    folder: Path
    card: dict  # the sidecar: sources, counts, hashes
    train: Split
    valid: Split

    @property
    def fingerprint(self) -> str:
        return self.card["fingerprint"]

    @property
    def vocab(self) -> int:
        return self.card["vocab"]


def prepare(data, seed: int, *, quiet: bool = False, stopping: Sequence[str] = ()) -> Corpus:
    """The corpus that a configuration's `data` describes, from the cache or built into it.

    `stopping` is looked at between documents: the names of signals that asked to stop.
    """
    encoder = tokenizer.load(data.tokenizer)
    listed = [_describe(path) for path in sources.files(data)]
    identity = {
        "format": FORMAT,
        "source": data.source,
        "files": [[entry["size"], entry["sha256"]] for entry in listed],
        "tokenizer": encoder.hash,
        "valid_fraction": data.valid_fraction,
    }
    if data.source == "jsonl":
        identity["field"] = data.field
    if data.source == "hub":
        identity |= {"path": data.path, "split": data.split, "field": data.field}
        identity["revision"] = sources.revision(data)
    if data.source == "synthetic":
        names = ("task", "documents", "document_length")
        identity |= {name: data[name] for name in names} | {"seed": seed}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    root = cache_folder(data.cache)
    folder = root / f"{data.source}-{key}"
    if _card(folder) is None:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f"{folder.name}.lock"):
            if _card(folder) is None:
                _build(folder, data, seed, encoder, listed, identity, quiet, stopping)
    return load(folder)


def load(folder: Path) -> Corpus:
    card = _card(folder)
    if card is None or _fingerprint(folder) != card["fingerprint"]:
        raise DataError(f"{folder} is not what was written there; delete it, to be made again")
    dtype = np.dtype(card["dtype"])
    return Corpus(folder, card, *(_load_split(folder, name, dtype) for name in SPLITS))


def _card(folder: Path) -> dict | None:
    """What is written last, so that a corpus without it is none."""
    try:
        return json.loads((folder / "corpus.json").read_text())
    except (FileNotFoundError, ValueError):
        return None


def cache_folder(named: str) -> Path:
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posenc-jax"


def _describe(path: Path) -> dict:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return {"path": str(path), "size": path.stat().st_size, "sha256": digest.hexdigest()}


def _load_split(folder, name, dtype) -> Split:
    def column(kind, kind_dtype):
        path = folder / f"{name}.{kind}"
        if not path.exists():
            return None
        if not path.stat().st_size:
            return np.zeros(0, kind_dtype)
        return np.memmap(path, kind_dtype, mode="r")

    tokens = column("tokens", dtype)
    assert tokens is not None
    starts = np.load(folder / f"{name}.starts.npy", allow_pickle=False)
    return Split(tokens, starts, column("bytes", np.uint16), column("answers", np.bool_))


def _build(folder, data, seed, encoder, listed, identity, quiet, stopping) -> None:
    dtype = np.dtype(
        np.uint8 if encoder.vocab <= 256 else "<u2" if encoder.vocab <= 65536 else "<u4"
    )
    scratch = folder.parent / f".{folder.name}.building"
    shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed; the lock is ours
    scratch.mkdir()
    writers = {name: _Writer(scratch, name, dtype) for name in SPLITS}
    try:
        seen: set[bytes] = set()
        counts = {"documents": 0, "duplicates": 0, "empty": 0}
        total = sum(entry["size"] for entry in listed) or None
        bar = tqdm(
            total=None if data.source != "stdlib" and data.source != "text" else total,
            desc=f"tokens of {data.source}",
            unit="B",
            unit_scale=True,
            disable=quiet,
        )
        with bar:
            for document in sources.documents(data, seed):
                if stopping:
                    raise Interrupted(
                        f"stopped by {stopping[0]} while the text was made into tokens; the same "
                        "command begins with that again"
                    )
                bar.update(len(document.text))
                digest = hashlib.sha256(document.text).digest()
                if not document.text:
                    counts["empty"] += 1
                elif digest in seen:
                    counts["duplicates"] += 1
                else:
                    seen.add(digest)
                    counts["documents"] += 1
                    held_out = int.from_bytes(digest[:8], "big") < data.valid_fraction * 2.0**64
                    writers["valid" if held_out else "train"].add(document, encoder)
        splits = {name: writer.close() for name, writer in writers.items()}
        if not splits["train"]["tokens"]:
            raise DataError(f"no text to train on: {counts} (data.source={data.source})")
        card = {
            "fingerprint": _fingerprint(scratch),
            "vocab": encoder.vocab,
            "tokenizer": encoder.name,
            "tokenizer_hash": encoder.hash,
            "dtype": dtype.str,
            "identity": identity,
            "counts": counts,
            "splits": splits,
            "sources": listed,
            "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with (scratch / "corpus.json").open("w") as stream:
            stream.write(json.dumps(card, indent=1))
            stream.flush()
            os.fsync(stream.fileno())
        shutil.rmtree(folder, ignore_errors=True)  # an unfinished one: it has no corpus.json
        scratch.rename(folder)
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        shutil.rmtree(scratch, ignore_errors=True)
        raise


class _Writer:
    def __init__(self, folder: Path, name: str, dtype: np.dtype):
        self.folder, self.name, self.dtype = folder, name, dtype
        self.streams: dict = {}
        self.starts = [0]
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
        self.starts.append(self.starts[-1] + len(tokens))
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
        with (self.folder / f"{self.name}.starts.npy").open("wb") as stream:
            np.save(stream, np.array(self.starts, np.int64))
            stream.flush()
            os.fsync(stream.fileno())
        tokens = self.starts[-1]
        return {
            "documents": len(self.starts) - 1,
            "tokens": tokens,
            "bytes": self.bytes,
            "bytes_per_token": self.bytes / tokens if tokens else None,
            "longest": int(np.max(np.diff(self.starts), initial=0)),
        }


def _fingerprint(folder: Path) -> str:
    """Of the tokens, their bytes and where documents begin, whatever they were made from."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.name != "corpus.json"):
        digest.update(f"{path.name} {_describe(path)['sha256']}\n".encode())
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
