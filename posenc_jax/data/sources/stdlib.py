"""The standard library's source code, which every machine with Python has."""

import dataclasses
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.data.sources import Document, Documents, _files
from posenc_jax.data.splits import hash_of, split_of
from posenc_jax.fields import default, one_of
from posenc_jax.runtime.errors import DataError


@dataclasses.dataclass(frozen=True)
class Stdlib(Documents):
    hold_out: str = default(
        "document",
        "what goes to one split as a whole: document (a file), package (all files of a top-level "
        "package, which count as one in errors)",
        one_of("document", "package"),
    )

    def files(self) -> list[Path]:
        return stdlib_files()

    def identity(self, seed: int) -> dict[str, Any]:
        by_package = self.hold_out == "package"
        return {"hold_out": "package", "groups": True} if by_package else {}

    def documents(self, seed: int) -> Iterator[Document]:
        for path in self.files():
            group = package_of(path) if self.hold_out == "package" else None
            yield _files.whole(path)._replace(group=group)


Source = Stdlib


LEFT_OUT = {"test", "idlelib", "encodings", "pydoc_data"}


def stdlib_files() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for name in sorted(sys.stdlib_module_names - LEFT_OUT):
        module, package = root / f"{name}.py", root / name
        if module.is_file():
            found.append(module)
        elif package.is_dir():
            inner = sorted(package.rglob("*.py"))
            unwanted = LEFT_OUT | {"tests"}
            found.extend(p for p in inner if not unwanted & set(p.relative_to(root).parts))
    if not found:
        raise DataError(f"the standard library's source is not at {root}; choose another source")
    return found


def package_of(path: Path) -> str:
    """Top-level package or module of a file, such as `asyncio` or `heapq`."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return path.relative_to(root).parts[0].removesuffix(".py")


@cache
def haystack(held_out: bool, valid_fraction: float) -> bytes:
    """Concatenated held-out or training documents of a run with this fraction."""
    texts = [path.read_bytes() for path in stdlib_files()]
    chosen = [
        text for text in texts if (split_of(hash_of(text), valid_fraction) == "valid") == held_out
    ]
    return b"\n".join(chosen or texts)


def stretch(
    rng: np.random.Generator, length: int, held_out: bool, valid_fraction: float
) -> np.ndarray:  # [length], uint8
    """Copy of `length` bytes of the haystack from a random place."""
    code = haystack(held_out, valid_fraction)
    begin = int(rng.integers(0, len(code) - length))
    return np.frombuffer(code, np.uint8)[begin : begin + length].copy()
