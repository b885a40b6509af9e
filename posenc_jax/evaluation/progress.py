"""eval/progress.json: the number of finished cells of a running evaluation."""

import json
from contextlib import suppress
from pathlib import Path

from posenc_jax.errors import Stop
from posenc_jax.files import write_atomically

NAME = "progress.json"


def write(folder: Path, done: int, cells: int) -> None:
    with suppress(Stop):  # a full disk is reported where a cell is saved
        write_atomically(folder / NAME, json.dumps({"done": done, "cells": cells}) + "\n")


def clear(folder: Path) -> None:
    with suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)


def read(folder: Path) -> tuple[int, int] | None:
    """Return the finished and the total cells; None before the first pass."""
    try:
        counts = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return counts["done"], counts["cells"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
