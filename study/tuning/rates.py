"""The rate of every rung by the loss that it is chosen by: python -m study.tuning.rates RUNS

Writes the loss at 8 L on a third split, of the runs of seed 0, to rows/rates.csv. The other seeds
run at the best rate of their rung.
"""

import csv
import json
import sys
from pathlib import Path

ROWS = Path(__file__).parent / "rows" / "rates.csv"


def best(path: Path = ROWS, loss: str = "nll") -> dict[str, float]:
    """The chosen rate of every rung; none before there are rows."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: -float(row[loss]))
    return {row["rung"]: float(row["rate"]) for row in rows}  # the lowest is the last


def of_run(run: Path) -> dict[str, object]:
    config = json.loads((run / "config.json").read_text())
    with (run / "eval" / "curves.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["evaluation"] == "choose"]
    (nll,) = (r["nll"] for r in rows if (r["method"], r["length"]) == ("none", "512"))
    return {"rung": config["label"], "rate": config["learning_rate"], "nll": nll, "run": run.name}


if __name__ == "__main__":
    found = [of_run(run) for run in sorted(Path(sys.argv[1]).glob("*-s0-*"))]
    with ROWS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(found, key=lambda row: (row["rung"], row["rate"])))
    print("\n".join(f"{rung}: {rate}" for rung, rate in best().items()))
