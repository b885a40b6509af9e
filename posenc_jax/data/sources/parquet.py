"""Parquet files, each row a document."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from posenc_jax.data.sources import Document, _files
from posenc_jax.runtime.errors import DataError

ROWS = 16  # read at once, each of which may be long


@dataclasses.dataclass(frozen=True)
class Parquet(_files.Rows):
    endings = (".parquet",)

    def read_file(self, path: Path) -> Iterator[Document]:
        import pyarrow.parquet

        number = 0
        try:
            with pyarrow.parquet.ParquetFile(path) as table:
                batches = table.iter_batches(ROWS, columns=[self.field])
                texts = (text.as_py() for batch in batches for text in batch.column(0))
                names = table.schema_arrow.names
                each = path.stat().st_size / max(table.metadata.num_rows, 1)
                for document in _files.of_column(str(path), self.field, names, texts, each):
                    yield document
                    number += 1
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"cannot read {path} after row {number}: {error}") from error


Source = Parquet
