"""Files of JSON lines, each line a document."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posenc_jax.data.sources import Document, _files
from posenc_jax.runtime.errors import DataError
from posenc_jax.runtime.files import parse_json


@dataclasses.dataclass(frozen=True)
class JsonLines(_files.Rows):
    endings = (".jsonl", ".jsonl.gz", ".jsonl.zst")

    def read_file(self, path: Path) -> Iterator[Document]:
        number = read = 0
        try:
            with _files.opened(path) as (stream, raw):
                for number, line in enumerate(stream, 1):
                    if line.strip():
                        place = f"{path}, line {number}"
                        before, read = read, raw.tell()
                        row, size = _row(place, line), read - before
                        yield _files.of_row(f"{path}:{number}", place, row, self.field, size)
        except _files.UNREADABLE as error:
            raise DataError(f"cannot read {path} after line {number}: {error}") from error


def _row(place: str, line: bytes) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise DataError(f"{place}: not JSON: {error}") from error
    return row if isinstance(row, dict) else {type(row).__name__: row}


Source = JsonLines
