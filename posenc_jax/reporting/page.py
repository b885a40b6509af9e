"""The page itself: one file, with its data inside, that asks no network for anything."""

import json
import sys
from pathlib import Path
from typing import Any

from posenc_jax.evaluation import protocols
from posenc_jax.files import write_atomically
from posenc_jax.reporting import figure
from posenc_jax.runs.workdir import now

TEMPLATE = Path(__file__).with_name("page.html")


def write(data: dict[str, Any], folder: Path) -> Path:
    from scipy.stats import t

    runs = [{k: v for k, v in run.items() if k != "experiment"} for run in data["runs"]]
    given = data | {
        "runs": runs,
        "looks": figure.looks(data["runs"]),
        "t95": [0.0, *(float(t.ppf(0.975, free)) for free in range(1, len(data["runs"]) + 1))],
        "protocols": {one.name: one.title for one in protocols.shown()},
        "made": now(),
        "command": " ".join(["python", *sys.argv]),
    }
    # Without one, nothing within a script element can end it.
    text = json.dumps(given, allow_nan=False).replace("<", "\\u003c")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    write_atomically(path, TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", text))
    return path
