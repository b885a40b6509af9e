"""metrics.jsonl, the record of a run: one line per logged step."""

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path

from posenc_jax.errors import Stop
from posenc_jax.files import write_atomically
from posenc_jax.terminal import warn


class Metrics:
    """The writer of metrics.jsonl, which holds every step once."""

    def __init__(self, path: Path, resume_at: int):
        """Open the file and drop lines after step `resume_at`, which will be trained again."""
        lines = _whole_lines(path)
        steps = [_step_of(line) for line in lines]
        if None in steps:
            copy = path.with_suffix(".damaged")
            copy.write_text(path.read_text(encoding="utf-8", errors="replace"), encoding="utf-8")
            warn(
                f"{path}: {steps.count(None)} damaged lines are skipped; the file is kept in {copy}"
            )
        pairs = zip(lines, steps, strict=True)
        text = "".join(
            f"{line}\n" for line, step in pairs if step is not None and step <= resume_at
        )
        write_atomically(path, text)
        self.path, self.size = path, len(text.encode())
        self.waiting: list[str] = []  # lines for which there was no room

    def write(self, record: Mapping) -> None:
        """Write a line; if that fails it waits for the next one, and partial lines are cut."""
        self.waiting.append(json.dumps(null_for_nan(record), allow_nan=False) + "\n")
        text = "".join(self.waiting).encode()
        try:
            if not self.path.exists():  # earlier lines are gone; later ones are kept
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
        """Refuse to save the last step before every line is written."""
        if self.waiting:
            raise Stop(
                f"{len(self.waiting)} lines of {self.path} could not be written; make room or "
                "restore the right to write there, then run the same command: it resumes from the "
                "checkpoint before them"
            )


def null_for_nan(record: Mapping) -> dict:
    """Replace numbers that are not finite by None, since JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in record.items()
    }


def read_metrics(path: Path) -> list[dict]:
    """The lines of a run, each an object of numbers with its `step`."""
    records = []
    for number, line in enumerate(_whole_lines(path), 1):
        try:
            records.append(_record_of(line))
        except ValueError as error:
            raise Stop(f"{path} is damaged: line {number}: {error}") from error
    return records


def _whole_lines(path: Path) -> list[str]:
    """The complete lines of a file; one that a killed process left half written is dropped."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line[:-1] for line in text.splitlines(keepends=True) if line[-1] == "\n"]


def _step_of(line: str) -> int | None:
    try:
        return _record_of(line)["step"]
    except ValueError:
        return None


def _record_of(line: str) -> dict:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f"not an object: {line[:60]}")
    if type(record.get("step")) is not int or record["step"] < 0:
        raise ValueError(f"step must be a whole number; got {record.get('step')!r}")
    for name, value in record.items():
        if not isinstance(value, int | float | None):
            raise ValueError(f"{name} must be a number; got {value!r}")
    return record
