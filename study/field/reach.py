"""Found at L of the checkpoints of lazy.py: python -m study.field.reach runs/lazy

Writes rows/reach.csv: what is 33 to 64 tokens back in rows of 64, every 120 steps.
"""

import sys
from pathlib import Path

from study.cells import STUDY
from study.field.again import COLUMNS, evaluate
from study.field.lazy import STEPS
from study.order.tables import L

FARTHEST = f"{L // 2 + 1}-{L}"
ROWS = STUDY / "field/rows/reach.csv"


def fields(config: dict) -> dict:
    return {"protocols": "found", "lengths": L, "extensions": "none"}


def main(sweep: Path) -> None:
    chosen = [path.parents[1] for path in sweep.glob("*/eval/curves.csv")]  # not trials of rates
    rows = evaluate(chosen, "reach", [STEPS], fields, "--every_checkpoint")
    rows = rows[rows.part == FARTHEST]
    rows[[*COLUMNS, "step", "found"]].to_csv(ROWS, index=False, float_format="%.4f")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
