"""The source code of the standard library, available on every machine with Python."""

import sys
import sysconfig
from functools import cache
from pathlib import Path

import numpy as np

from posenc_jax.data.splits import hash_of, split_of
from posenc_jax.errors import DataError

LEFT_OUT = {"test", "idlelib", "encodings", "pydoc_data"}


def files() -> list[Path]:
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
    texts = [path.read_bytes() for path in files()]
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
