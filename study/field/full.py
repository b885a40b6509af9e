"""Which layer of a hybrid finds values: python -m study.field.full runs/field

Evaluates the hybrids of 9,600 steps with a full layer that sees two tokens, and gathers what is
found and how many last values are answered in rows/full.csv.
"""

import sys

from study.cells import STUDY
from study.field.again import COLUMNS, evaluate, runs_in
from study.order.tables import BUDGETS, FAR, L

ROWS = STUDY / "field/rows/full.csv"


def fields(config: dict) -> dict | None:
    if config["encoding"]["name"] != "hybrid":
        return None
    return {
        "protocols": "found,last_of_two",
        "lengths": f"{L},{FAR}",
        "extensions": "none,window:size=2",
    }


def main(sweeps: list[str]) -> None:
    rows = evaluate(runs_in(sweeps), "full", BUDGETS[-1:], fields)
    rows[[*COLUMNS, "accuracy", "found"]].to_csv(ROWS, index=False, float_format="%.4f")


if __name__ == "__main__":
    main(sys.argv[1:])
