"""Measurements in a file of JSON lines, each added as soon as it is known.

A measurement has a line when it begins and one when it ends; the last line of a key counts.
"""

import json
from pathlib import Path
from typing import Any

BEGUN, DONE, FAILED = "begun", "done", "failed"


class Records:
    """Measurements so far, by keys `part/name`, after those of other files."""

    def __init__(self, path: Path, *others: Path):
        self.path, self.by_key = path, {}
        files = [file for file in (*others, path) if file.exists()]
        for line in "".join(file.read_text(encoding="utf-8") for file in files).splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # cut off by a kill
                continue
            self.by_key[record.pop("key")] = record
        for key, record in list(self.by_key.items()):
            if record["state"] == BEGUN:
                self.add(key, FAILED, error="the process was killed during this measurement")

    def add(self, key: str, state: str, **values: Any) -> None:
        self.by_key[key] = {"state": state, **values}
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"key": key, "state": state, **values}) + "\n")
