"""Atomic writes, folder locks and errors of a disk."""

import errno
import fcntl
import os
import platform
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from posenc_jax.errors import Busy, Stop

NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
NO_PERMISSION = {errno.EACCES, errno.EPERM}
READ_ONLY = {errno.EROFS}
NO_RESOURCES = {errno.ENOMEM, errno.EMFILE, errno.ENFILE}  # no memory, no file handles


def write_atomically(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.part")  # one name, so that a leftover is replaced
    try:
        scratch.unlink(missing_ok=True)  # also a link, which would be followed
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise Stop(f"cannot write {path}: {error}") from error


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder for one process; the system releases the lock when that process dies."""
    with (folder / ".lock").open("a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            holder = stream.read().strip() or "an unnamed process"
            raise Busy(f"{folder} is in use by {what}: {holder}") from None
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {platform.node()}")
        stream.flush()
        yield


def causes(error: BaseException) -> list[BaseException]:
    """An error and the chain of errors it was raised from."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    return chain


def caused_by(error: BaseException, numbers: Collection[int]) -> bool:
    """Whether an error was caused by a system error with one of these `errno` numbers."""
    return any(isinstance(cause, OSError) and cause.errno in numbers for cause in causes(error))
