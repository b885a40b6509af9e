"""Found by distance up to 64 L: python -m study.field.fade SWEEP...

python scripts/prepare_data.py --config=configs/ordered.py:rope --config.data.far=64 \\
    --config.data.documents=1000 --tokens_out=runs/far_tokens

makes the text of its rows. Evaluates the runs of 9,600 steps of some encodings of sweeps like
study/order/budget.py in rows of up to 4,096 tokens and gathers what they found in rows/fade.csv.
"""

import sys

from study.cells import STUDY
from study.field.again import COLUMNS, evaluate, runs_in
from study.order.tables import BUDGETS, L

ENCODINGS = ("selective_rope", "alibi", "fox", "rope")
LENGTHS = (L, 8 * L, 64 * L)
TOKENS = "runs/far_tokens"
ROWS = STUDY / "field/rows/fade.csv"


def fields(config: dict) -> dict | None:
    encoding = config["encoding"]
    if encoding["name"] not in ENCODINGS or encoding.get("imaginary"):
        return None
    return {
        "data.tokens": TOKENS,
        "protocols": "found",
        "lengths": ",".join(map(str, LENGTHS)),
        "documents": 200,
        "extensions": "none",
    }


def main(sweeps: list[str]) -> None:
    rows = evaluate(runs_in(sweeps), "far", BUDGETS[-1:], fields).astype({"answers": int})
    rows[[*COLUMNS, "answers", "found"]].to_csv(ROWS, index=False, float_format="%.4f")


if __name__ == "__main__":
    main(sys.argv[1:])
