"""Signals that request a program to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_requests() -> Iterator[list[str]]:
    """Collect the names of stop signals received.

    A second ^C interrupts immediately; other signals, which launchers often send twice, do not.
    Only the main thread receives signals, so other threads collect none. Under nohup SIGHUP stays
    ignored.
    """
    received: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number, frame):
        received.append(signal.Signals(number).name)
        if number == signal.SIGINT:
            signal.signal(number, previous[number])

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
