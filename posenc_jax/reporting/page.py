"""The page itself: one file, with its data inside, that asks no network for anything."""

import json
import sys
from pathlib import Path
from typing import Any

from posenc_jax.evaluation.picture import ENCODINGS
from posenc_jax.evaluation.windows import WORD
from posenc_jax.training.run import now, write_atomically

TEMPLATE = Path(__file__).with_name("page.html")


def write(data: dict[str, Any], folder: Path) -> Path:
    given = data | {
        "colors": {name: color for name, (color, _) in ENCODINGS.items()},
        "protocols": WORD,
        "made": now(),
        "command": " ".join(["python", *sys.argv]),
    }
    # Within a script element only this could end it.
    text = json.dumps(given, allow_nan=False).replace("</", "<\\/")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    write_atomically(path, TEMPLATE.read_text().replace("__DATA__", text))
    return path
