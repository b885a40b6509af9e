"""Hashes of files, cached while their size and times stay the same."""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from posenc_jax.errors import Stop
from posenc_jax.files import write_atomically

FILE = "hashes.json"  # in the cache folder: size, times, inode and hash of each file
MOST = 20_000  # files remembered, the newest
YOUNG = 2.0  # seconds within which a file may change again without a new time


class Hashes:
    """sha256 of files, cached by path, size, times and inode."""

    def __init__(self, cache: Path):
        self.path = cache / FILE
        self.known: dict[str, list] = {}
        with suppress(OSError, ValueError):
            self.known = json.loads(self.path.read_text(encoding="utf-8"))
        self.new = False

    def of(self, path: Path) -> str:
        name, stamp = os.path.abspath(path), _stamp(path)
        if self.known.get(name, [])[:-1] == stamp:
            return self.known[name][-1]
        digest = hash_of_file(path)
        if time.time() - max(stamp[1], stamp[2]) / 1e9 > YOUNG and _stamp(path) == stamp:
            self.known.pop(name, None)  # the newest come last
            self.known[name] = [*stamp, digest]
            self.new = True
        return digest

    def describe(self, path: Path) -> dict:
        return {"path": str(path), "size": path.stat().st_size, "sha256": self.of(path)}

    def total(self, paths: Iterable[Path]):
        """Running sha256 over names and hashes of files, in order of their names."""
        digest = hashlib.sha256()
        for path in sorted(paths):
            digest.update(f"{path.name} {self.of(path)}\n".encode())
        return digest

    def keep(self) -> None:
        """Write new hashes if the cache folder is writable."""
        if self.new and self.path.parent.is_dir() and os.access(self.path.parent, os.W_OK):
            with suppress(Stop):
                write_atomically(self.path, json.dumps(dict(list(self.known.items())[-MOST:])))
            self.new = False


@contextmanager
def remembered(cache: Path) -> Iterator[Hashes]:
    hashes = Hashes(cache)
    try:
        yield hashes
    finally:
        hashes.keep()


def hash_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _stamp(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
