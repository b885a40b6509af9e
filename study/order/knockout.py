"""Knock-outs of the grid of budget.py: python -m study.order.knockout runs/budget

Hides keys from queries in the runs of 600, 2,400 and 9,600 steps (scripts/diagnose.py --knockout)
and gathers what it measured in rows/knockout.csv. Runs that were measured are not measured again.
"""

import subprocess
import sys
from pathlib import Path

import pandas as pd

from posenc_jax.runtime.files import read_json
from study.cells import STUDY

STEPS = (600, 2_400, 9_600)
METHODS = {"rope": "none,yarn:8", "nope": "none,logn"}  # of others none
FAR = 512
ROWS = STUDY / "order/rows/knockout.csv"


def main(sweep: Path) -> None:
    found = []
    for run in sorted(path.parent for path in sweep.glob("*/status.json")):
        config, status = (read_json(run / f"{name}.json") for name in ("config", "status"))
        if config["steps"] not in STEPS or status["state"] != "done":
            continue
        name, table = config["encoding"]["name"], run / "eval" / "diagnose" / "knockout.csv"
        if not table.exists():
            methods = METHODS.get(name, "none")
            command = ["scripts/diagnose.py", f"{run}@{methods}@{FAR}", "--knockout"]
            if subprocess.run([sys.executable, *command]).returncode:
                continue  # CoPE has scores of its own
        facts = {"encoding": name, "steps": config["steps"], "seed": config["seed"]}
        found.append(pd.read_csv(table).assign(**facts))
    rows = pd.concat(found)
    rows.to_csv(ROWS, index=False)
    print(f"{ROWS}: {len(found)} runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
