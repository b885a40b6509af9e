"""metrics.jsonl, the record of a run: one line per logged step."""

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path

from posenc_jax.runtime.errors import Stop
from posenc_jax.runtime.files import REMEDY, parse_json, write_atomically


class Metrics:
    """The writer of metrics.jsonl, which has every logged step once."""

    def __init__(self, path: Path, resume_at: int):
        """Open the file and drop the lines after step `resume_at`."""
        kept = [record for record in read_metrics(path) if record["step"] <= resume_at]
        write_atomically(path, "".join(json.dumps(record) + "\n" for record in kept))
        self.path = path

    def write(self, record: Mapping) -> None:
        """Append a line; a part of one, left by a full disk, is dropped on resuming."""
        line = json.dumps(null_for_nan(record), allow_nan=False) + "\n"
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(line)
        except OSError as error:
            raise Stop(f"cannot write {self.path}: {error}; {REMEDY}") from error


def null_for_nan(record: Mapping) -> dict:
    """Replace values that are not finite by None, since JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in record.items()
    }


def read_metrics(path: Path) -> list[dict]:
    """Read the lines of a run, each an object of numbers with a `step`."""
    records = []
    for number, line in enumerate(_whole_lines(path), 1):
        try:
            records.append(_record_of(line))
        except ValueError as error:
            raise Stop(f"{path} is damaged: line {number}: {error}") from error
    return records


def _whole_lines(path: Path) -> list[str]:
    """Return the complete lines of a file, without a partial last one."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line[:-1] for line in text.splitlines(keepends=True) if line[-1] == "\n"]


def _record_of(line: str) -> dict:
    record = parse_json(line)
    if not isinstance(record, dict):
        raise ValueError(f"not an object: {line[:60]}")
    if type(record.get("step")) is not int or record["step"] < 0:
        raise ValueError(f"step must be a whole number; got {record.get('step')!r}")
    for name, value in record.items():
        huge = isinstance(value, int) and value.bit_length() > 63
        if huge or not isinstance(value, int | float | None):
            raise ValueError(f"{name} must be a number; got {value!r:.60}")
    return record
