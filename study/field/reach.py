"""Found by hybrids of lazy.py: python -m study.field.reach runs/lazy

Writes rows/reach.csv: what is 33 to 64 tokens back in rows of 64, every 120 steps, and what is
beyond L in rows of 512 after the last.
"""

import sys
from pathlib import Path

import pandas as pd

from study.cells import STUDY
from study.field.again import COLUMNS, evaluate
from study.field.lazy import STEPS
from study.order.tables import FAR, L

FARTHEST = f"{L // 2 + 1}-{L}"
ROWS = STUDY / "field/rows/reach.csv"


def main(sweep: Path) -> None:
    chosen = [path.parents[1] for path in sweep.glob("*/eval/curves.csv")]  # not trials of rates
    asked = {"protocols": "found", "extensions": "none"}
    near, far = asked | {"lengths": L}, asked | {"lengths": f"{L},{FAR}"}
    at_L = evaluate(chosen, "reach", [STEPS], lambda _: near, "--every_checkpoint")
    beyond = evaluate(chosen, "beyond", [STEPS], lambda _: far)
    rows = pd.concat([at_L[at_L.part == FARTHEST], beyond[beyond.part == "beyond"]])
    rows[[*COLUMNS, "step", "found"]].to_csv(ROWS, index=False, float_format="%.4f")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
