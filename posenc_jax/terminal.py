"""What is said to people, and how a program ends. A terminal that is gone ends nothing."""

import os
import sys
from collections.abc import Callable

from posenc_jax import errors


def say(text: str, *, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:  # a closed pipe or terminal: from here on into nothing
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def warn(text: str) -> None:
    say(f"warning: {text}", error=True)


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def code_of(body: Callable[[], object]) -> int:
    """Runs what a program does; its exit code, with one line where it is an error."""
    try:
        code = body()
        return code if isinstance(code, int) else errors.DONE
    except KeyboardInterrupt:
        say("left at once; the same command goes on from what was saved", error=True)
        return errors.AGAIN
    except (errors.Stop, OSError) as error:
        say(f"error: {error}", error=True)
        return error.code if isinstance(error, errors.Stop) else errors.IO
