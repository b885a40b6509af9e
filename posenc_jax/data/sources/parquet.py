"""Parquet files, each row a document."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posenc_jax.data.sources import Document, _files
from posenc_jax.runtime.errors import DataError

BYTES = 2**28  # of texts read at once


@dataclasses.dataclass(frozen=True)
class Parquet(_files.Rows):
    endings = (".parquet",)

    def read_file(self, path: Path) -> Iterator[Document]:
        arrow, number = _files.pyarrow(path), 0
        try:
            with arrow.parquet.ParquetFile(path) as table:
                batches = table.iter_batches(self._rows_at_once(table), columns=[self.field])
                texts = (text.as_py() for batch in batches for text in batch.column(0))
                names = table.schema_arrow.names
                each = path.stat().st_size / max(table.metadata.num_rows, 1)
                for document in _files.of_column(str(path), self.field, names, texts, each):
                    yield document
                    number += 1
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"cannot read {path} after row {number}: {error}") from error

    def _rows_at_once(self, table: Any) -> int:
        """Rows whose texts fit in memory, were each as long as its column of a row group: a file of
        a kilobyte may repeat a text of many megabytes."""
        groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
        columns = (group.column(i) for group in groups for i in range(group.num_columns))
        own = (c for c in columns if c.path_in_schema.split(".")[0] == self.field)
        longest = max((column.total_uncompressed_size for column in own), default=0)
        return max(1, min(_files.ROWS, BYTES // max(1, longest)))


Source = Parquet
