"""Publish what was measured on a real model: python -m study.real.publish RUN...

Writes the losses of every cell by document to rows/documents.csv.xz beside this file, where cells
of other runs stay. A model is named by the folder of its run, as in smollm2-bfloat16.
"""

import sys
from pathlib import Path

import pandas as pd

from study.publish import documents_of

ROWS = Path(__file__).parent / "rows" / "documents.csv.xz"
KEYS = ["model", "method", "protocol", "length", "part", "token_hash", "processor", "document"]


def merged(runs: list[Path]) -> pd.DataFrame:
    """Rows of runs and the published ones, each cell once."""
    own = [documents_of(run).assign(model=run.name.partition("-")[0]) for run in runs]
    rows = pd.concat([*own, pd.read_csv(ROWS)])
    rows = rows.drop_duplicates(KEYS).sort_values(KEYS)
    return rows[[*KEYS, "nats", "targets", "right"]].astype({"targets": int, "right": int})


if __name__ == "__main__":
    merged([Path(run) for run in sys.argv[1:]]).to_csv(ROWS, index=False)
