"""Files of text, each a document or cut into documents."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from posenc_jax.data.sources import Document, _files


@dataclasses.dataclass(frozen=True)
class TextFiles(_files.Files):
    endings = ("",)  # of a folder all files are read

    def read_file(self, path: Path) -> Iterator[Document]:
        return _files.cut(_files.whole(path), self.begins)


Source = TextFiles
