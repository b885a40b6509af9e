"""Reading of files that a person names: patterns, packed files, documents of several rows."""

import dataclasses
import glob
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar

from posenc_jax import fields, registry
from posenc_jax.data import sources
from posenc_jax.data.sources import Document, Documents
from posenc_jax.fields import default, true_or_false
from posenc_jax.runtime.errors import DataError
from posenc_jax.runtime.files import expanded

# Errors raised by damaged files, compressed or not.
UNREADABLE = (OSError, EOFError, zlib.error)


def given(name: str, value: Any):
    if not words(value):
        raise ValueError(f"{name} must say what to read; it is empty")


def _regular_expression(name: str, value: Any):
    try:
        re.compile(value)
    except (re.error, TypeError) as error:
        raise ValueError(f"{name} must be a regular expression; got {value!r}: {error}") from error


FIELD = default("text", "the field with the text")


@dataclasses.dataclass(frozen=True)
class Cut(Documents):
    """A text that may be cut into documents."""

    begins: str | None = default(
        None,
        "a regular expression of the line or row that begins a document, ' = [^=]' for WikiText; "
        "None: each file or row is one",
        _regular_expression,
    )
    cut_one: bool = default(
        True,
        "True: of a text of four documents or fewer the end of each is held out, valid_fraction of "
        "it",
        true_or_false,
    )
    min_tokens: int = default(0, "documents of fewer tokens are left out", fields.whole(0))

    held_out_by: ClassVar[str]  # the option that names what is held out

    @property
    def cuts_few(self) -> bool:
        return self.cut_one

    @property
    def names_held_out(self) -> bool:
        return bool(getattr(self, self.held_out_by))

    def identity(self, seed: int) -> dict[str, Any]:
        options = {"begins": self.begins, "cut_one": self.cut_one, "min_tokens": self.min_tokens}
        return {name: value for name, value in options.items() if value}

    def mistakes(self) -> list[str]:
        if not self.names_held_out or self.valid_fraction == type(self).valid_fraction:
            return super().mistakes()
        return [
            *super().mistakes(),
            f"data.valid_fraction = {self.valid_fraction!r} has no effect beside "
            f"data.{self.held_out_by}, which names what is held out",
        ]


@dataclasses.dataclass(frozen=True)
class Files(Cut):
    """Files, folders or globs of one kind."""

    path: str = default(
        "", "files, folders or globs, separated by commas, also packed (.gz, .zst)", given
    )
    valid_path: str | None = default(
        None, "files that are held out, named as in path; None: valid_fraction of path"
    )

    held_out_by = "valid_path"
    endings: ClassVar[tuple[str, ...]]  # of the files in a folder that are read

    def files(self) -> list[Path]:
        return self._matches("data.path", self.path)

    def held_out_files(self) -> list[Path]:
        return self._matches("data.valid_path", self.valid_path) if self.valid_path else []

    def documents(self, seed: int) -> Iterator[Document]:
        for document in self.read(self.held_out_files()):
            yield document._replace(split="valid")
        yield from self.read(self.files())

    def read(self, paths: Iterable[Path]) -> Iterator[Document]:
        return itertools.chain.from_iterable(map(self.read_file, paths))

    def read_file(self, path: Path) -> Iterator[Document]:
        raise NotImplementedError

    def _matches(self, field: str, patterns: str) -> list[Path]:
        paths: list[Path] = []
        for pattern in words(patterns):
            place = expanded(pattern)
            matched = [path for path in _named(place) if path.is_file()]
            matched = _files_in(place, self.endings) if place.is_dir() else matched
            if not matched:
                raise DataError(f"{field}: nothing matches {pattern!r}")
            paths.extend(matched)
        rows = [kind for kind in map(sources.find, registry.sources()) if issubclass(kind, Rows)]
        for path, other in itertools.product(paths, rows):
            if path.name.lower().endswith(other.endings) and not isinstance(self, other):
                raise DataError(
                    f"{field}: data.source={self.kind()} does not read {path}; set data.source="
                    f"{other.kind()}, which takes the text from a field of its rows (data.field)"
                )
        return paths

    def missing(self) -> list[str]:
        """Patterns that match no file."""
        return [
            f"data.{name}: nothing matches {pattern!r}"
            for name in ("path", "valid_path")
            for pattern in words(getattr(self, name) or "")
            if not _named(expanded(pattern))
        ]


@dataclasses.dataclass(frozen=True)
class Rows(Files):
    """Files of rows, with the text in one field."""

    field: str = FIELD

    def identity(self, seed: int) -> dict[str, Any]:
        return super().identity(seed) | {"field": self.field}

    def read(self, paths: Iterable[Path]) -> Iterator[Document]:
        return joined(super().read(paths), self.begins)


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _named(place: Path) -> list[Path]:
    """A path that exists, though it be written like a glob, or all that match."""
    names = glob.glob(glob.escape(str(place))) or glob.glob(str(place), recursive=True)
    return sorted(map(Path, names))


def _files_in(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """Files in a folder with one of these endings, without hidden ones."""
    inside = (p for p in folder.rglob("*") if p.is_file() and p.name.endswith(endings))
    return sorted(p for p in inside if "/." not in f"/{p.relative_to(folder).as_posix()}")


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, IO[bytes]]]:
    """Open a file: the decompressed stream, and the raw one, whose position shows progress."""
    with path.open("rb") as raw:
        if path.suffix == ".gz":
            with gzip.open(raw) as text:
                yield text, raw
        elif path.suffix == ".zst":
            import pyarrow

            with io.BufferedReader(pyarrow.input_stream(raw, compression="zstd")) as text:
                yield text, raw
        else:
            yield raw, raw


def whole(path: Path) -> Document:
    try:
        with opened(path) as (stream, _):
            text = stream.read()
        size = path.stat().st_size
    except UNREADABLE as error:
        raise DataError(f"cannot read {path}: {error}") from error
    return Document(str(path), text, size=size)


def cut(document: Document, begins: str | None) -> Iterator[Document]:
    """Documents in a file, each of which begins with a matching line."""
    starts = _starts(document.text, begins) if begins else ()
    edges = sorted({0, *starts, len(document.text)})
    if len(edges) > 2 and not document.text[: edges[1]].strip():  # no text before the first match
        edges.pop(1)
    if len(edges) <= 2:
        yield document
        return
    each = document.size / len(document.text)
    for start, end in zip(edges, edges[1:], strict=False):
        text = document.text[start:end]
        yield Document(f"{document.name} at byte {start:,}", text, size=each * len(text))


def _starts(text: bytes, begins: str) -> Iterator[int]:
    """Places of the matching lines."""
    place = 0
    for line in io.BytesIO(text):
        if _matches(line, begins):
            yield place
        place += len(line)


def _matches(text: bytes, begins: str) -> bool:
    return re.match(begins, text.decode(errors="replace"), re.MULTILINE) is not None


def joined(rows: Iterable[Document], begins: str | None) -> Iterator[Document]:
    """Documents of several rows, each of which begins with a matching row; None: of one row."""
    if not begins:
        yield from rows
        return
    gathered, blank = [], True
    for row in rows:
        if not blank and _matches(row.text, begins):
            yield _one(gathered)
            gathered, blank = [], True
        gathered.append(row)
        blank = blank and not row.text.strip()
    if gathered:
        yield _one(gathered)


def _one(rows: list[Document]) -> Document:
    text = b"".join(r.text if r.text.endswith(b"\n") else r.text + b"\n" for r in rows)
    return Document(rows[0].name, text, size=sum(row.size for row in rows))


def of_column(
    path: str, field: str, names: Iterable[str], texts: Iterable[Any], each: float
) -> Iterator[Document]:
    """Documents of a table, from the texts in one of its columns and the bytes read for each."""
    _check_field(path, field, names)
    for number, text in enumerate(texts):
        yield of_row(f"{path}:{number}", f"{path}, row {number}", {field: text}, field, each)


def of_row(name: str, place: str, row: Mapping[str, Any], field: str, size: float) -> Document:
    """The document in a field of a row."""
    _check_field(place, field, row)
    text = row[field]
    if not isinstance(text, str):
        raise DataError(
            f"{place}: no text in field {field!r} (data.field); got {type(text).__name__}"
        )
    try:
        return Document(name, text.encode(), size=size)
    except UnicodeEncodeError as error:  # JSON can encode half of a surrogate pair
        raise DataError(
            f"{place}: a lone surrogate, {text[error.start]!a}, is not text; repair it"
        ) from error


def _check_field(place: str, field: str, names: Iterable[str]) -> None:
    if field not in names:
        raise DataError(f"{place}: no field {field!r} (data.field); has: {', '.join(names)}")
