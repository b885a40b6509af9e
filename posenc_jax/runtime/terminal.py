"""Terminal output, exit codes and stop signals; a closed terminal does not end a program."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from posenc_jax.runtime import errors
from posenc_jax.runtime.files import expanded


def say(text: str, *, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    try:
        print(printable(text, keep="\n\t"), file=stream, flush=True)
    except OSError:  # a closed pipe or terminal
        silence(stream)


def printable(text: str, keep: str = "") -> str:
    """The text with escapes in place of characters that control the terminal."""
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def silence(stream: TextIO) -> None:
    """Discard everything written to a stream from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: `1 document`, `2,000 documents`."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def warn(text: str) -> None:
    say(f"warning: {text}", error=True)


def parser(about: str | None) -> argparse.ArgumentParser:
    """A parser of flags whose help is this text; in paths `~` is the home folder."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    made.register("type", Path, lambda text: expanded(in_known_home(text)))
    return made


def in_known_home(text: str) -> str:
    """The path that a flag gives, refused if it begins with `~NAME` of an unknown user."""
    if text.startswith("~") and str(expanded(text)).startswith("~"):
        name = text.partition("/")[0]
        problem = f"{text}: there is no home folder {name}; ./{text} is a path in this folder"
        raise argparse.ArgumentTypeError(problem)
    return text


def program(main: Callable[[list[str]], int]) -> int:
    """Run a program and return its exit code; a closed pipe, as by `head`, is not an error."""
    try:
        return main(sys.argv)
    except BrokenPipeError:
        silence(sys.stdout)
        return errors.DONE
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                silence(stream)


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def code_of(body: Callable[[], object]) -> int:
    """Run the body of a program and return its exit code; each mistake is reported in one
    line."""
    try:
        code = body()
    except BaseException as error:
        return reported(error)
    return code if isinstance(code, int) else errors.DONE


def reported(error: BaseException) -> int:
    """Report an error in one line and return its exit code; faults of the program are raised."""
    if isinstance(error, KeyboardInterrupt):
        say("stopped immediately; the same command resumes from the last save", error=True)
    elif isinstance(error, ModuleNotFoundError) and (advice := errors.missing(error)):
        say(f"error: {advice}", error=True)
        return errors.CONFIG
    elif isinstance(error, errors.Stop | OSError):
        lines = error.args if isinstance(error, errors.ConfigError) else [error]
        say("\n".join(f"error: {line}" for line in lines), error=True)
    else:
        raise error
    return errors.code_of(error)


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
