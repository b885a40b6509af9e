"""Who may write in a folder, and how a program is asked to stop."""

import fcntl
import os
import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posenc_jax.errors import Busy


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """One process at a time. The system lets go when the holder dies, so nothing is left over."""
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


@contextmanager
def stop_requests() -> Iterator[list[str]]:
    """Names of the signals that asked to stop. A second ^C is not held back; of the others, which
    launchers like to send twice, one is enough."""
    received: list[str] = []

    def note(number, frame):
        received.append(signal.Signals(number).name)
        if number == signal.SIGINT:
            signal.signal(number, previous[number])

    previous = {
        number: signal.signal(number, note)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    }
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
