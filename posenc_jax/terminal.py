"""Printing to the user, and how a program ends. A closed terminal ends no program."""

import os
import sys
from collections.abc import Callable
from typing import TextIO

from posenc_jax import errors, packages


def say(text: str, *, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:  # a closed pipe or terminal
        silence(stream)


def silence(stream: TextIO) -> None:
    """Discards everything written to a stream from here on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def counted(count: int, noun: str) -> str:
    """A count before its noun: `1 document`, `2,000 documents`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def warn(text: str) -> None:
    say(f"warning: {text}", error=True)


def program(main: Callable[[list[str]], int]) -> int:
    """The exit code of a program; a reader that has left, as `head` does, is no error."""
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
    """Runs the body of a program and returns its exit code; an error is reported in one line."""
    try:
        code = body()
        return code if isinstance(code, int) else errors.DONE
    except KeyboardInterrupt as error:
        say("stopped at once; the same command resumes from what was saved", error=True)
        return errors.code_of(error)
    except ModuleNotFoundError as error:
        if packages.missing(error) is None:
            raise
        say(f"error: {packages.missing(error)}", error=True)
        return errors.CONFIG
    except (errors.Stop, OSError) as error:
        say(f"error: {error}", error=True)
        return errors.code_of(error)
