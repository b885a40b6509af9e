"""Files of JSON lines, each line a document."""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from posenc_jax.data.sources import Document, _files
from posenc_jax.runtime.errors import DataError


@dataclasses.dataclass(frozen=True)
class JsonLines(_files.Rows):
    endings = (".jsonl", ".jsonl.gz", ".jsonl.zst")

    def rows(self, paths: Iterable[Path]) -> Iterator[Document]:
        for path in paths:
            yield from _lines(path, self.field)


def _lines(path: Path, field: str) -> Iterator[Document]:
    number = read = 0
    try:
        with _files.opened(path) as (stream, raw):
            for number, line in enumerate(stream, 1):
                if line.strip():
                    text = _field(path, number, line, field)
                    before, read = read, raw.tell()
                    yield Document(f"{path}:{number}", text, size=read - before)
    except _files.UNREADABLE as error:
        raise DataError(f"cannot read {path} after line {number}: {error}") from error


def _field(path: Path, number: int, line: bytes, field: str) -> bytes:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}, line {number}: not JSON: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        has = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        raise DataError(
            f"{path}, line {number}: no text in field {field!r} (data.field); has: {has}"
        )
    return _files.encoded(row[field], f"{path}, line {number}")


Source = JsonLines
