"""Sources of documents: each lists its files, for fingerprints, and yields documents as bytes."""

import glob
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posenc_jax.data import stdlib, synthetic, tasks
from posenc_jax.errors import ConfigError, DataError
from posenc_jax.registry import SOURCES, probes

# Errors that a damaged file raises, packed or not.
_UNREADABLE = (OSError, EOFError, zlib.error)
BOMB, LEAST_BOMB = 200, 1 << 28  # text packs to about a tenth; more than this is no text
LONGEST_LINE = 1 << 30


class Document(NamedTuple):
    name: str
    text: bytes
    answers: np.ndarray | None = None  # of each byte, whether it is an answer; None: no answers
    gaps: np.ndarray | None = None  # of each answer, how many tokens before its question it stands
    group: str | None = None  # documents of one group go to one split; None: each by its own text
    split: str | None = None  # where a task has documents of its own for each; None: by a hash


def digest(text: bytes) -> int:
    """A 64-bit hash of a document's text, the same for a file and a JSON line: line ends and
    surrounding white space do not count."""
    plain = text.replace(b"\r\n", b"\n").strip()
    return int.from_bytes(hashlib.sha256(plain).digest()[:8], "big")


def files(data) -> list[Path]:
    """The files a source reads, in order. `hub` and most of `synthetic` read none of their own."""
    if data.source == "stdlib" or (data.source == "synthetic" and task_reads_code(data)):
        return stdlib.files()
    if data.source in ("text", "jsonl"):
        return _matches(data.path)
    return []


def revision(data) -> str | None:
    """The fingerprint by `datasets` of what `hub` reads; the files identify other sources."""
    return _hub_rows(data)._fingerprint if data.source == "hub" else None


def documents(data, seed: int, train_length: int | None = None) -> Iterator[Document]:
    """`train_length` is L of the run, which tasks that ask beyond it must know."""
    if data.source in ("stdlib", "text"):
        for path in files(data):
            by_package = data.source == "stdlib" and data.hold_out == "package"
            group = stdlib.package_of(path) if by_package else None
            yield Document(str(path), _read(path), group=group)
    elif data.source == "jsonl":
        for path in files(data):
            yield from _json_lines(path, data.field)
    elif data.source == "hub":
        yield from _hub(data)
    elif data.source == "synthetic":
        if data.task in probes():
            yield from _task_documents(data, seed, train_length)
            return
        for i, (text, answers) in enumerate(
            synthetic.documents(data.task, data.documents, data.document_length, seed)
        ):
            yield Document(f"{data.task}-{i}", text, answers)
    else:
        raise ValueError(f"data.source must be one of {', '.join(SOURCES)}; got {data.source!r}")


def task_of(data, train_length: int) -> tasks.Task:
    """The task that `data` describes, at L."""
    try:
        return tasks.make(data.task, train_length, **{n: data[n] for n in tasks.options(data.task)})
    except ValueError as error:
        raise ConfigError(f"data.task={data.task}: {error}") from error


def task_reads_code(data) -> bool:
    return data.task in probes() and tasks.read_code(data.task)


def _task_documents(data, seed: int, train_length: int | None) -> Iterator[Document]:
    if train_length is None:
        raise ValueError(f"data.task={data.task} needs the length that is trained at")
    task = task_of(data, train_length)
    rows = -(-data.documents * (train_length + 1) // task.length(training=True))
    counts = {"train": rows, "valid": tasks.TESTS if data.valid_fraction else 0}
    counts["choose"] = tasks.CHOICES if data.choose_fraction else 0
    for split, count in counts.items():
        for i, drawn in enumerate(task.documents(split, count, seed)):
            name = f"{data.task}-{split}-{i}"
            yield Document(name, drawn.text.tobytes(), drawn.answers, drawn.gaps, split=split)


def _matches(patterns: str) -> list[Path]:
    paths = []
    for pattern in filter(None, (p.strip() for p in patterns.split(","))):
        names = sorted(glob.glob(str(Path(pattern).expanduser()), recursive=True))
        matched = [Path(name) for name in names if Path(name).is_file()]
        if not matched:
            raise DataError(f"data.path: nothing matches {pattern!r}")
        paths.extend(matched)
    if not paths:
        raise DataError("data.path is empty; give files or globs, separated by commas")
    return paths


def _read(path: Path) -> bytes:
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        most = max(LEAST_BOMB, BOMB * path.stat().st_size)
        with gzip.open(path) as stream:
            text = stream.read(most + 1)
    except _UNREADABLE as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if len(text) > most:
        raise DataError(
            f"{path} unpacks to more than {most:,} bytes, {BOMB} times its size, and is no text"
        )
    return text


def _json_lines(path: Path, field: str) -> Iterator[Document]:
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as stream:
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise DataError(
                        f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes; cut the text "
                        "into documents"
                    )
                if line.strip():
                    yield Document(f"{path}:{number}", _field(path, number, line, field))
    except _UNREADABLE as error:
        raise DataError(f"cannot read {path} after line {number}: {error}") from error


def _field(path: Path, number: int, line: bytes, field: str) -> bytes:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # brackets nested too deep
        raise DataError(f"{path}, line {number}: not JSON: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        has = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        raise DataError(
            f"{path}, line {number}: no text in field {field!r} (data.field); has: {has}"
        )
    return _encoded(row[field], f"{path}, line {number}")


def _encoded(text: str, place: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # JSON can encode half of a surrogate pair
        raise DataError(
            f"{place}: a lone surrogate, {text[error.start]!a}, is no text; repair it"
        ) from error


def _hub_rows(data):
    import datasets

    try:
        return datasets.load_dataset(data.path, split=data.split, streaming=False)
    except Exception as error:  # many types, from the network to a missing split
        raise DataError(f"cannot load {data.path!r}, split {data.split!r}: {error}") from error


def _hub(data) -> Iterator[Document]:
    for i, row in enumerate(_hub_rows(data)):
        if not isinstance(row.get(data.field), str):
            has = ", ".join(row)
            raise DataError(f"{data.path}, row {i}: no text in field {data.field!r}; has: {has}")
        yield Document(f"{data.path}:{i}", _encoded(row[data.field], f"{data.path}, row {i}"))
