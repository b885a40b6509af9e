"""Publish what the runs of smollm2.sh read: python -m study.tuning.publish RUNS OUT.csv.xz"""

import sys
from pathlib import Path

import pandas as pd

from study.publish import documents_of

COLUMNS = "run method protocol length part document nats targets processor".split()

if __name__ == "__main__":
    runs = sorted(place.parents[1] for place in Path(sys.argv[1]).glob("*/eval/curves.csv"))
    rows = pd.concat([own[own.evaluation == "ladder"] for own in map(documents_of, runs)])
    rows[COLUMNS].to_csv(sys.argv[2], index=False)
    print(f"{sys.argv[2]}: {len(runs)} runs, {len(rows):,} rows")
