"""metrics.jsonl, the record of a run: one line per logged step."""

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path

from posenc_jax.errors import Stop
from posenc_jax.files import write_atomically
from posenc_jax.terminal import warn


class Metrics:
    """The file as training writes it: every step once."""

    def __init__(self, path: Path, resume_at: int):
        """Lines from `resume_at` on are taken back: those steps are about to be made again."""
        lines = _whole_lines(path)
        steps = [_step_of(line) for line in lines]
        if None in steps:
            copy = path.with_suffix(".damaged")
            copy.write_text(path.read_text(encoding="utf-8", errors="replace"), encoding="utf-8")
            warn(f"{path}: {steps.count(None)} lines are no metrics and left out; kept in {copy}")
        pairs = zip(lines, steps, strict=True)
        text = "".join(f"{line}\n" for line, at in pairs if at is not None and at <= resume_at)
        write_atomically(path, text)
        self.path, self.size = path, len(text.encode())
        self.waiting: list[str] = []  # lines for which there was no room

    def write(self, record: Mapping) -> None:
        """Lines that cannot be written wait for the next one; what was half written is cut off."""
        self.waiting.append(json.dumps(null_for_nan(record), allow_nan=False) + "\n")
        text = "".join(self.waiting).encode()
        try:
            if not self.path.exists():  # what was in it is gone; what comes is kept
                self.path.touch()
                self.size = 0
            with self.path.open("r+b") as stream:
                stream.truncate(self.size)
                stream.seek(self.size)
                stream.write(text)
        except OSError as error:
            if len(self.waiting) == 1:
                warn(f"cannot write {self.path}: {error}; its lines wait, and no step is saved")
            return
        self.size += len(text)
        self.waiting.clear()

    def check(self) -> None:
        """Before the last step is saved: whoever goes on from it finds every line."""
        if self.waiting:
            raise Stop(
                f"{len(self.waiting)} lines of {self.path} could not be written; make room or give "
                "back the right to write there, then run the same command: it goes on from the "
                "checkpoint before them"
            )


def null_for_nan(record: Mapping) -> dict:
    """JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in record.items()
    }


def read_metrics(path: Path) -> list[dict]:
    try:
        return [json.loads(line) for line in _whole_lines(path)]
    except ValueError as error:
        raise Stop(f"{path} is damaged: {error}") from error


def _whole_lines(path: Path) -> list[str]:
    """A line that a killed process left half written has no end, and is dropped."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line[:-1] for line in text.splitlines(keepends=True) if line[-1] == "\n"]


def _step_of(line: str) -> int | None:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return None
