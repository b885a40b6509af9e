"""Top-k on frozen weights: python -m study.field.topk SWEEP...

Evaluates the runs of 600 and 9,600 steps of sweeps like study/order/budget.py with attention to the
8 and 32 highest logits and gathers found and order in rows/topk.csv. Finished evaluations are not
repeated.
"""

import subprocess
import sys
from pathlib import Path

import pandas as pd

from posenc_jax.runtime.files import read_json
from study.cells import STUDY
from study.order.tables import FAR, L

STEPS = (600, 9_600)
KS = (8, 32)
COLUMNS = ["run", "seed", "steps", "method", "protocol", "length", "part"]
VALUES = ["accuracy", "found", "order", "held"]
ROWS = STUDY / "field/rows/topk.csv"


def methods(encoding: dict) -> list[str]:
    rotates = encoding["name"] in ("rope", "pope") or encoding.get("global_rope")
    plain = ["none", *(f"topk:k={k}" for k in KS)]
    extended = ["yarn:8", *(f"yarn:8+topk:k={k}" for k in KS)]
    return plain + (extended if rotates else [])


def main(sweeps: list[Path]) -> None:
    found = []
    for run in sorted(path.parent for sweep in sweeps for path in sweep.glob("*/status.json")):
        config, status = (read_json(run / f"{name}.json") for name in ("config", "status"))
        if config["steps"] not in STEPS or status["state"] != "done":
            continue
        command = ["eval_extrapolation.py", f"--workdir={run}", "--config.name=topk"]
        command += ["--config.protocols=found,last_of_two", "--config.window=False"]
        command += [f"--config.lengths={L},{FAR}", "--config.tokens_per_call=32768"]
        command += [f"--config.extensions={','.join(methods(config['encoding']))}"]
        subprocess.run([sys.executable, *command], check=True)
        rows = pd.read_csv(run / "eval" / "curves.csv")
        rows = rows[(rows.evaluation == "topk") & rows.part.isin(["within", "beyond"])]
        facts = {"run": run.name, "steps": config["steps"], "seed": config["seed"]}
        found.append(rows.assign(**facts)[COLUMNS + VALUES].astype({"length": int}))
    pd.concat(found).sort_values(COLUMNS).to_csv(ROWS, index=False, float_format="%.4f")
    print(f"{ROWS}: {len(found)} runs")


if __name__ == "__main__":
    main([Path(sweep) for sweep in sys.argv[1:]])
