"""Atomic writes and locks."""

import csv
import fcntl
import io
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from posenc_jax.runtime.errors import Busy, DataError, Stop

NO_FILE = "it is a folder, device or pipe; only regular files are replaced"
# Spreadsheets run a text that begins so; after an apostrophe they show it.
FORMULA, ESCAPED = r"^('*[=+@\t\r-])", r"^'('*[=+@\t\r-])"
REMEDY = "free space or restore write permission; the same command resumes from the last checkpoint"


def expanded(path: str | Path) -> Path:
    """The path with `~` as the home folder; `~NAME` of an unknown user is left as it is."""
    return Path(os.path.expanduser(path))


def is_replaceable(path: Path) -> bool:
    """True if a path can be written: it does not exist yet or is a regular file."""
    return path.is_file() or not path.exists()


def shortest(paths: Iterable[str]) -> dict[str, str]:
    """Each path by as many of its last parts as tell all of them apart."""
    parts = {path: Path(path).parts for path in paths}
    for count in range(1, max(map(len, parts.values()), default=0) + 1):
        names = {path: str(Path(*own[-count:])) if own else path for path, own in parts.items()}
        if len(set(names.values())) == len(names):
            return names
    return {path: path for path in parts}


def write_atomically(path: Path, content: str | bytes) -> None:
    scratch = path.with_name(f".{path.name}.part")  # a fixed name: the next write replaces it
    written = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        if not is_replaceable(path):
            raise Stop(f"cannot write {path}: {NO_FILE}")
        with scratch.open("wb") as stream:
            stream.write(written)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise Stop(f"cannot write {path}: {error}") from error


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        texts = {name: cell for name, cell in row.items() if isinstance(cell, str)}
        writer.writerow({**row, **{n: re.sub(FORMULA, r"'\1", t) for n, t in texts.items()}})
    write_atomically(path, table.getvalue())


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a file that `write_csv` wrote."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(stream, restval="")
        return [{n: re.sub(ESCAPED, r"\1", cell) for n, cell in row.items() if n} for row in rows]


def read_json(path: Path) -> Any:
    return parse_json(path.read_text(encoding="utf-8"))


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text, or a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A DataError for any error of a library that reads a file; a panic of Rust is no Exception."""
    try:
        yield
    except (Stop, ImportError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"cannot read {path}: {reason}") from error


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock file, after waiting for other processes to release it."""
    with path.open("a", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder, or raise Busy with its holder; the lock ends with the process."""
    with ExitStack() as stack:
        try:
            stream = stack.enter_context((folder / ".lock").open("a+b", buffering=0))
            _lock(stream, folder, what)
        except OSError as error:
            raise Stop(f"cannot lock {folder}: {error.strerror}; {REMEDY}") from error
        yield


def _lock(stream: io.FileIO, folder: Path, what: str) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.seek(0)
        holder = stream.read().decode().strip() or "an unnamed process"
        raise Busy(f"{folder} is in use by {what}: {holder}") from None
    stream.truncate(0)
    stream.write(f"process {os.getpid()} on {platform.node()}".encode())
