"""The standard library's source code, which every machine with Python has."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posenc_jax.data import stdlib
from posenc_jax.data.sources import Document, Documents, _files
from posenc_jax.fields import default, one_of


@dataclasses.dataclass(frozen=True)
class Stdlib(Documents):
    hold_out: str = default(
        "document",
        "what goes to one split as a whole: document (a file), package (all files of a top-level "
        "package, which count as one in errors)",
        one_of("document", "package"),
    )

    def files(self) -> list[Path]:
        return stdlib.files()

    def identity(self, seed: int) -> dict[str, Any]:
        by_package = self.hold_out == "package"
        return {"hold_out": "package", "groups": True} if by_package else {}

    def documents(self, seed: int) -> Iterator[Document]:
        for path in self.files():
            group = stdlib.package_of(path) if self.hold_out == "package" else None
            yield _files.whole(path)._replace(group=group)


Source = Stdlib
