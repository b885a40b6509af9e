"""sha256 of files, remembered in the folder of caches."""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from posenc_jax.runtime.errors import Stop
from posenc_jax.runtime.files import read_json, write_atomically
from posenc_jax.runtime.terminal import warn

HASHES_FILE = "hashes.json"  # in the cache folder: size, times, inode and hash of each file
HASH = re.compile("[0-9a-f]{64}")
SETTLED_SECONDS = 2.0  # seconds within which a file may change again without a new time


class Hashes:
    """sha256 of files, cached by path, size, times and inode."""

    def __init__(self, cache: Path):
        self.path = cache / HASHES_FILE
        self.known: dict[str, list] = {}
        with suppress(OSError):
            self.known = self._read()
        self.new = False

    def _read(self) -> dict[str, list]:
        """The hashes in the file; none, with a warning, of one that is damaged."""
        try:
            known = read_json(self.path)
            if all(HASH.fullmatch(entry[-1]) for entry in known.values()):
                return known
        except (ValueError, TypeError, LookupError, AttributeError):
            pass
        warn(f"{self.path} is damaged: files are hashed again")
        return {}

    def of(self, path: Path) -> str:
        name, stamp = os.path.abspath(path), _stamp(path)
        if self.known.get(name, [])[:-1] == stamp:
            return self.known[name][-1]
        digest = hash_of_file(path)
        if time.time() - max(stamp[1], stamp[2]) / 1e9 > SETTLED_SECONDS and _stamp(path) == stamp:
            self.known[name] = [*stamp, digest]
            self.new = True
        return digest

    def total(self, paths: Iterable[Path]):
        """Running sha256 over names and hashes of files, in order of their names."""
        digest = hashlib.sha256()
        for path in sorted(paths):
            digest.update(f"{path.name} {self.of(path)}\n".encode())
        return digest

    def __enter__(self) -> "Hashes":
        return self

    def __exit__(self, *_) -> None:
        """Write new hashes if the cache folder is writable."""
        if self.new:
            with suppress(Stop, OSError):
                write_atomically(self.path, json.dumps(self.known))


def hash_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _stamp(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
