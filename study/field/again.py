"""Evaluate finished runs once more."""

import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pandas as pd

from posenc_jax.runtime.files import read_json

COLUMNS = ["run", "seed", "steps", "method", "protocol", "length", "part"]


def runs_in(sweeps: list[str]) -> list[Path]:
    return [path.parent for sweep in sweeps for path in Path(sweep).glob("*/status.json")]


def evaluate(
    runs: list[Path],
    name: str,
    steps: Collection[int],
    fields: Callable[[dict], dict | None],
    *flags: str,
) -> pd.DataFrame:
    """Rows of an evaluation of the runs of these steps; `fields` makes its fields from a run's
    configuration, None to leave the run out. Finished evaluations are not repeated."""
    found = []
    for run in sorted(runs):
        config, status = (read_json(run / f"{part}.json") for part in ("config", "status"))
        asked = fields(config)
        if asked is None or config["steps"] not in steps or status["state"] != "done":
            continue
        command = ["eval_extrapolation.py", f"--workdir={run}", f"--config.name={name}", *flags]
        command += ["--config.window=False", "--config.tokens_per_call=32768"]
        command += [f"--config.{field}={value}" for field, value in asked.items()]
        subprocess.run([sys.executable, *command], check=True)
        rows = pd.read_csv(run / "eval" / "curves.csv")
        rows = rows[(rows.evaluation == name) & rows.part.notna()]
        facts = {"run": run.name, "steps": config["steps"], "seed": config["seed"]}
        found.append(rows.assign(**facts).astype({"length": int}))
    return pd.concat(found).sort_values(COLUMNS)
