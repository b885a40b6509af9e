"""Publish what the runs of smollm2.sh read, and the losses that chose their rates:
python -m study.tuning.publish RUNS ROWS
"""

import sys
from pathlib import Path

import pandas as pd

from study.publish import documents_of

STEPS = 15  # the last, whose loss chooses a rate
COLUMNS = "run method protocol length part document nats targets processor".split()


def chosen_by(runs: Path) -> pd.DataFrame:
    """Nats per token of the last rows of each run of seed 0, while it was trained."""
    found = []
    for path in sorted(runs.glob("*-s0-rate=*/metrics.jsonl")):
        rung, rate = path.parent.name.split("-s0-rate=")
        loss = pd.read_json(path, lines=True).dropna(subset="loss").loss
        found.append({"rung": rung, "rate": float(rate), "nats": loss.tail(STEPS).mean()})
    return pd.DataFrame(found)


if __name__ == "__main__":
    out = Path(sys.argv[2])
    chosen_by(Path(sys.argv[1])).to_csv(out / "smollm2_rates.csv", index=False)
    runs = sorted(place.parents[1] for place in Path(sys.argv[1]).glob("*/eval/curves.csv"))
    rows = pd.concat([own[own.evaluation == "ladder"] for own in map(documents_of, runs)])
    rows[COLUMNS].to_csv(out / "smollm2.csv.xz", index=False)
    print(f"{out}: {len(runs)} runs, {len(rows):,} rows")
