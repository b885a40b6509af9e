"""eval/yardsticks.csv: losses of n-gram models on the targets of a run."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc_jax.errors import Stop
from posenc_jax.files import write_atomically

FILE = "yardsticks.csv"
COLUMNS: Sequence[str] = "evaluation,order,last,token_hash,tokens,nll,bpb,counted".split(",")


def write(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Add rows to the file in an `eval/` folder, in place of those of the same evaluation."""
    new = {row["evaluation"] for row in rows}
    every = [*(row for row in read(folder) if row["evaluation"] not in new), *rows]
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(every)
    write_atomically(folder / FILE, table.getvalue())
    return folder / FILE


def read(folder: Path) -> list[dict[str, Any]]:
    """Read the rows in an `eval/` folder; none without a file."""
    path = folder / FILE
    if not path.exists():
        return []
    kinds = {"order": int, "last": int, "tokens": int, "counted": int, "nll": float, "bpb": float}
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return [
                {n: kinds.get(n, str)(row[n]) if row[n] else None for n in COLUMNS}
                for row in csv.DictReader(stream)
            ]
    except (KeyError, ValueError) as error:
        raise Stop(f"{path} is damaged: {error!r}; run scripts/yardstick.py again") from error
