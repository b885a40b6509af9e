"""Publish what was measured on a real model: python -m study.real.publish RUN...

Writes the losses of every cell by document to rows/documents.csv.xz beside this file, where cells
of other runs stay.
"""

import sys
from pathlib import Path

import pandas as pd

from posenc_jax.evaluation.cells import label
from posenc_jax.evaluation.records import read_cells

ROWS = Path(__file__).parent / "rows" / "documents.csv.xz"
KEYS = ["method", "protocol", "length", "part", "token_hash", "processor"]


def rows_of(run: Path) -> pd.DataFrame:
    """A row per cell and document."""
    found = []
    for cell in read_cells(run / "eval"):
        facts = cell.facts | {"method": label(cell.facts)}
        columns = {name: facts[name] for name in KEYS}
        own = {"nats": cell.nats.round(4), "targets": cell.tokens, "right": cell.right}
        found.append(pd.DataFrame(columns | {"document": range(len(cell.nats))} | own))
    return pd.concat(found)


def merged(runs: list[Path]) -> pd.DataFrame:
    """Rows of runs and the published ones, each cell once."""
    order = [*KEYS, "document"]
    rows = pd.concat([*map(rows_of, runs), pd.read_csv(ROWS)])
    rows = rows.drop_duplicates(order).sort_values(order)
    return rows.astype({"targets": int, "right": int})


if __name__ == "__main__":
    merged([Path(run) for run in sys.argv[1:]]).to_csv(ROWS, index=False)
