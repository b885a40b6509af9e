"""Parquet files, each row a document."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from posenc_jax.data.sources import Document, _files
from posenc_jax.runtime.errors import DataError


@dataclasses.dataclass(frozen=True)
class Parquet(_files.Rows):
    endings = (".parquet",)

    def rows(self, paths: Iterable[Path]) -> Iterator[Document]:
        for path in paths:
            yield from _rows(path, self.field)


def _rows(path: Path, field: str) -> Iterator[Document]:
    arrow, number = _files.pyarrow(path), 0
    try:
        with arrow.parquet.ParquetFile(path) as table:
            _files.check_column(str(path), field, table.schema_arrow.names)
            each = path.stat().st_size / max(table.metadata.num_rows, 1)
            for batch in table.iter_batches(_files.ROWS, columns=[field]):
                for text in batch.column(0).to_pylist():
                    yield _files.row(str(path), number, text, field, each)
                    number += 1
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {path} after row {number}: {error}") from error


Source = Parquet
