"""Top-k on frozen weights: python -m study.field.topk SWEEP...

Evaluates the runs of 600 and 9,600 steps of sweeps like study/order/budget.py with attention to the
8 and 32 highest logits and gathers found and order in rows/topk.csv.
"""

import sys

from study.cells import STUDY
from study.field.again import COLUMNS, evaluate, runs_in
from study.order.tables import FAR, L

STEPS = (600, 9_600)
KS = (8, 32)
VALUES = ["accuracy", "found", "order", "held"]
ROWS = STUDY / "field/rows/topk.csv"


def fields(config: dict) -> dict | None:
    encoding = config["encoding"]
    if encoding["name"] == "retention":  # without a softmax
        return None
    methods = ["none", *(f"topk:k={k}" for k in KS)]
    if encoding["name"] == "rope" and not encoding.get("imaginary"):
        methods += ["yarn:8", *(f"yarn:8+topk:k={k}" for k in KS)]
    return {
        "protocols": "found,last_of_two",
        "lengths": f"{L},{FAR}",
        "extensions": ",".join(methods),
    }


def main(sweeps: list[str]) -> None:
    rows = evaluate(runs_in(sweeps), "topk", STEPS, fields)
    rows = rows[rows.part.isin(["within", "beyond"])]
    rows[COLUMNS + VALUES].to_csv(ROWS, index=False, float_format="%.4f")


if __name__ == "__main__":
    main(sys.argv[1:])
