"""Files of text, each a document or cut into documents."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from posenc_jax.data.sources import Document, _files


@dataclasses.dataclass(frozen=True)
class TextFiles(_files.Files):
    endings = ("",)  # of a folder all files are read

    def read(self, paths: Iterable[Path]) -> Iterator[Document]:
        for path in paths:
            yield from _files.cut(_files.whole(path), self.begins)


Source = TextFiles
