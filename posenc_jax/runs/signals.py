"""How a program is asked to stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


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
