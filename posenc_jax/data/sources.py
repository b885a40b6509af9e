"""Sources of documents; each lists its files, for fingerprints, and yields documents as bytes."""

import glob
import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from posenc_jax.data import stdlib, synthetic, tasks
from posenc_jax.errors import ConfigError, DataError
from posenc_jax.registry import FILES, SOURCES, probes

# Errors raised by damaged files, compressed or not.
_UNREADABLE = (OSError, EOFError, zlib.error)
BOMB, LEAST_BOMB = 200, 1 << 28  # text compresses about tenfold; a larger ratio is refused
LONGEST_LINE = 1 << 30
ROWS = 256  # rows of parquet and data sets read at once
# Files in a folder that a source reads, compressed or not; text reads all.
ENDINGS = {"jsonl": (".jsonl", ".jsonl.gz", ".jsonl.zst"), "parquet": (".parquet",), "text": ("",)}


class Document(NamedTuple):
    name: str
    text: bytes
    answers: np.ndarray | None = None  # mask of the bytes that are answers; None: no answers
    gaps: np.ndarray | None = None  # distance of each answer from question to setting, in tokens
    group: str | None = None  # documents of a group share a split; None: no group
    split: str | None = None  # set by the source; None: chosen by a hash
    size: float = 0.0  # bytes read for it from its file


def digest(text: bytes) -> int:
    """64-bit hash of a document's text that ignores line-end style and surrounding white space."""
    plain = text.replace(b"\r\n", b"\n").strip()
    return int.from_bytes(hashlib.sha256(plain).digest()[:8], "big")


def files(data) -> list[Path]:
    """Files a source reads, in order; none for `hub` and most synthetic tasks."""
    if data.source == "stdlib" or (data.source == "synthetic" and task_reads_code(data)):
        return stdlib.files()
    if data.source in FILES:
        return _matches("data.path", data.path, data.source)
    return []


def held_out_files(data) -> list[Path]:
    """Files in data.valid_path, whose documents are held out."""
    if data.source in FILES and data.valid_path:
        return _matches("data.valid_path", data.valid_path, data.source)
    return []


def names_held_out(data) -> bool:
    """True if the configuration names the held-out documents."""
    return bool(data.valid_path or data.valid_split)


class HubFacts(NamedTuple):
    revision: str | list[str]  # fingerprints by `datasets` of the splits read
    size: int  # bytes


def hub_facts(data) -> HubFacts:
    """Fingerprints and size of a data set of `hub`."""
    sets = [_hub_rows(data, split) for split in (data.split, data.valid_split) if split]
    prints = [rows._fingerprint for rows in sets]
    size = sum(rows.data.nbytes for rows in sets)
    return HubFacts(prints if data.valid_split else prints[0], size)


def documents(data, seed: int, train_length: int | None = None) -> Iterator[Document]:
    """Documents in order, those in named held-out files first so that no duplicate is trained on.

    `train_length` is L of the run, which tasks need.
    """
    if data.source == "synthetic":
        yield from _synthetic(data, seed, train_length)
        return
    if data.source not in SOURCES:
        raise ValueError(f"data.source must be one of {', '.join(SOURCES)}; got {data.source!r}")
    if names_held_out(data):
        for document in _read_all(data, held_out_files(data), data.valid_split):
            yield document._replace(split="valid")
    yield from _read_all(data, files(data), data.split)


def _synthetic(data, seed: int, train_length: int | None) -> Iterator[Document]:
    if data.task in probes():
        yield from _task_documents(data, seed, train_length)
        return
    for i, (text, answers) in enumerate(
        synthetic.documents(data.task, data.documents, data.document_length, seed)
    ):
        yield Document(f"{data.task}-{i}", text, answers)


def _read_all(data, paths: Iterable[Path], split: str | None) -> Iterator[Document]:
    """Documents of some files, or of a split of a data set."""
    if data.source in ("stdlib", "text"):
        by_package = data.source == "stdlib" and data.hold_out == "package"
        for path in paths:
            group = stdlib.package_of(path) if by_package else None
            for part in _cut(_text(path), data.begins):
                yield part._replace(group=group)
        return
    if data.source == "hub":
        rows = _hub(data, split)
    else:
        read = _json_lines if data.source == "jsonl" else _parquet
        rows = (row for path in paths for row in read(path, data.field))
    yield from _joined(rows, data.begins) if data.begins else rows


def task_of(data, train_length: int) -> tasks.Task:
    """Task of a configuration's `data`, at L."""
    try:
        return tasks.make(data.task, train_length, **{n: data[n] for n in tasks.options(data.task)})
    except ValueError as error:
        raise ConfigError(f"data.task={data.task}: {error}") from error


def task_reads_code(data) -> bool:
    return data.task in probes() and tasks.read_code(data.task)


def _task_documents(data, seed: int, train_length: int | None) -> Iterator[Document]:
    if train_length is None:
        raise ValueError(f"data.task={data.task} needs the training length")
    task = task_of(data, train_length)
    rows = -(-data.documents * (train_length + 1) // task.length(training=True))
    counts = {"train": rows, "valid": tasks.TESTS if data.valid_fraction else 0}
    counts["choose"] = tasks.CHOICES if data.choose_fraction else 0
    for split, count in counts.items():
        for i, drawn in enumerate(task.documents(split, count, seed)):
            name = f"{data.task}-{split}-{i}"
            yield Document(name, drawn.text.tobytes(), drawn.answers, drawn.gaps, split=split)


def _matches(field: str, patterns: str, source: str) -> list[Path]:
    paths: list[Path] = []
    for pattern in filter(None, (p.strip() for p in patterns.split(","))):
        place = Path(pattern).expanduser()
        names = sorted(glob.glob(str(place), recursive=True))
        matched = [Path(name) for name in names if Path(name).is_file()]
        matched = _files_in(place, source) if place.is_dir() else matched
        if not matched:
            raise DataError(f"{field}: nothing matches {pattern!r}")
        paths.extend(matched)
    if not paths:
        raise DataError(f"{field} is empty; give files, folders or globs, separated by commas")
    return paths


def _files_in(folder: Path, source: str) -> list[Path]:
    """Files in a folder that a source reads, without hidden ones."""
    inside = (p for p in folder.rglob("*") if p.is_file() and p.name.endswith(ENDINGS[source]))
    return sorted(p for p in inside if not any(_hidden(w) for w in p.relative_to(folder).parts))


def _hidden(name: str) -> bool:
    return name.startswith(".")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, IO[bytes]]]:
    """Open a file: the decompressed stream, and the raw one, whose position shows progress."""
    with path.open("rb") as raw:
        if path.suffix == ".gz":
            with gzip.open(raw) as text:
                yield text, raw
        elif path.suffix == ".zst":
            with io.BufferedReader(_pyarrow(path).input_stream(raw, compression="zstd")) as text:
                yield text, raw
        else:
            yield raw, raw


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            f"reading {path} needs the package pyarrow, which is not installed; install it, or use "
            "prepared tokens (data.tokens)"
        ) from error
    return pyarrow


def _text(path: Path) -> Document:
    try:
        size = path.stat().st_size
        most = max(LEAST_BOMB, BOMB * size)
        with _opened(path) as (stream, raw):
            text = stream.read() if stream is raw else stream.read(most + 1)
            packed = stream is not raw
    except _UNREADABLE as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if packed and len(text) > most:
        raise DataError(
            f"{path} decompresses to over {most:,} bytes, {BOMB} times its size; it is not text"
        )
    return Document(str(path), text, size=size)


def _cut(whole: Document, begins: str | None) -> Iterator[Document]:
    """Documents in a file, each of which begins with a matching line."""
    starts = [m.start() for m in re.finditer(_pattern(begins), whole.text)] if begins else []
    edges = sorted({0, *starts, len(whole.text)})
    if len(edges) > 2 and not whole.text[: edges[1]].strip():  # no text before the first match
        edges.pop(1)
    if len(edges) <= 2:
        yield whole
        return
    each = whole.size / len(whole.text)
    for start, end in zip(edges, edges[1:], strict=False):
        text = whole.text[start:end]
        yield Document(f"{whole.name} at byte {start:,}", text, size=each * len(text))


def _joined(rows: Iterable[Document], begins: str) -> Iterator[Document]:
    """Documents of several rows, each of which begins with a matching row."""
    pattern, gathered, blank = re.compile(_pattern(begins)), [], True
    for row in rows:
        if not blank and pattern.match(row.text):
            yield _one(gathered)
            gathered, blank = [], True
        gathered.append(row)
        blank = blank and not row.text.strip()
    if gathered:
        yield _one(gathered)


def _one(rows: list[Document]) -> Document:
    text = b"".join(r.text if r.text.endswith(b"\n") else r.text + b"\n" for r in rows)
    return Document(rows[0].name, text, size=sum(row.size for row in rows))


def _pattern(begins: str) -> bytes:
    return f"(?m)^(?:{begins})".encode()


def _json_lines(path: Path, field: str) -> Iterator[Document]:
    number = read = 0
    try:
        with _opened(path) as (stream, raw):
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise DataError(
                        f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes; cut the text "
                        "into documents"
                    )
                if line.strip():
                    text = _field(path, number, line, field)
                    before, read = read, raw.tell()
                    yield Document(f"{path}:{number}", text, size=read - before)
    except _UNREADABLE as error:
        raise DataError(f"cannot read {path} after line {number}: {error}") from error


def _parquet(path: Path, field: str) -> Iterator[Document]:
    arrow, number = _pyarrow(path), 0
    try:
        with arrow.parquet.ParquetFile(path) as table:
            _check_column(str(path), field, table.schema_arrow.names)
            each = path.stat().st_size / max(table.metadata.num_rows, 1)
            for batch in table.iter_batches(ROWS, columns=[field]):
                for text in batch.column(0).to_pylist():
                    yield _row(str(path), number, text, field, each)
                    number += 1
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {path} after row {number}: {error}") from error


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
            f"{place}: a lone surrogate, {text[error.start]!a}, is not text; repair it"
        ) from error


def _check_column(place: str, field: str, names: Iterable[str]) -> None:
    if field not in names:
        raise DataError(f"{place}: no field {field!r} (data.field); has: {', '.join(names)}")


def _row(place: str, number: int, text: Any, field: str, size: float) -> Document:
    if not isinstance(text, str):
        raise DataError(
            f"{place}, row {number}: no text in field {field!r} (data.field); got "
            f"{type(text).__name__}"
        )
    return Document(f"{place}:{number}", _encoded(text, f"{place}, row {number}"), size=size)


def _hub_rows(data, split: str):
    """Split of a data set from the Hub, or from a folder written by `save_to_disk`."""
    import datasets

    folder = Path(data.path).expanduser()
    name = "" if data.name is None else f", data.name={data.name}"
    if folder.exists() and data.revision:
        raise ConfigError(
            f"data.revision has no effect: {data.path} is a folder, not a data set of the Hub"
        )
    saved = any((folder / file).is_file() for file in ("dataset_dict.json", "state.json"))
    if saved and data.name:
        raise ConfigError(f"data.name has no effect: {data.path} was saved as one configuration")
    try:
        if saved:
            return _saved(folder, split)
        place = str(folder) if folder.exists() else data.path
        return datasets.load_dataset(place, data.name, split=split, revision=data.revision)
    except Exception as error:  # many types, from the network to a missing split
        reason = " ".join(str(error).split())
        raise DataError(f"cannot load {data.path!r}{name}, split {split!r}: {reason}") from error


def _saved(folder: Path, split: str):
    """Split of a data set written by `save_to_disk`, which may have one or several splits."""
    import datasets

    found = datasets.load_from_disk(str(folder))
    if isinstance(found, datasets.DatasetDict):
        sets = {str(name): rows for name, rows in found.items()}
    else:
        sets = {str(found.split or "train"): found}
    if split not in sets:
        raise ValueError(f"have: {', '.join(sets)}")
    return sets[split]


def _hub(data, split: str | None) -> Iterator[Document]:
    rows = _hub_rows(data, split or "train")
    _check_column(data.path, data.field, rows.column_names)
    each, number = rows.data.nbytes / max(len(rows), 1), 0
    for batch in rows.select_columns(data.field).iter(ROWS):
        for text in batch[data.field]:
            yield _row(data.path, number, text, data.field, each)
            number += 1
