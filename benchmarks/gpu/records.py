"""Keep measurements in a file of JSON lines, each added as soon as it is known.

A measurement has a line when it begins and another when it ends, so the file tells what a process
was doing when it was lost. The last line of a key counts.
"""

import json
import time
from pathlib import Path
from typing import Any

BEGUN, DONE, FAILED = "begun", "done", "failed"


class Records:
    """Measurements so far, by keys `part/what`."""

    def __init__(self, path: Path):
        self.path = path

    def last(self) -> dict[str, dict]:
        """The last line of each key."""
        last = {}
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # cut off by a kill
                continue
            last[record["key"]] = record
        return last

    def ended(self) -> dict[str, dict]:
        return {key: record for key, record in self.last().items() if record["state"] != BEGUN}

    def begun(self, part: str) -> list[str]:
        """The measurement that an ended part had begun and not finished."""
        return [
            key
            for key, record in self.last().items()
            if key.startswith(f"{part}/") and record["state"] == BEGUN
        ]

    def add(self, key: str, state: str, **values: Any) -> None:
        """Add a whole line, on a new line even after one that a kill cut off."""
        line = json.dumps({"key": key, "state": state, "time": round(time.time(), 1), **values})
        with self.path.open("a+b") as file:
            at_start = file.tell() == 0
            if not at_start:
                file.seek(-1, 2)
                at_start = file.read(1) == b"\n"
            file.write(("" if at_start else "\n").encode() + line.encode() + b"\n")
