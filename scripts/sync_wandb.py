"""python scripts/sync_wandb.py RUN [RUN ...] [--mode=online|offline]

Writes a run's metrics.jsonl, and its curves where it was evaluated, into clean wandb runs: for runs
that were trained offline, cut off from wandb, or resumed where their lines are doubled there.
"""

import argparse
import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from posenc_jax import errors, terminal  # noqa: E402
from posenc_jax.evaluation import records, wandb_curves  # noqa: E402
from posenc_jax.runs.metrics import read_metrics  # noqa: E402
from posenc_jax.runs.workdir import Workdir  # noqa: E402
from posenc_jax.tracking.wandb import View, start_training  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--mode", choices=("online", "offline"), default="online")
    options = parser.parse_args()
    return terminal.code_of(lambda: [sync(run, options.mode) for run in options.runs])


def sync(run: Path, mode: str) -> None:
    workdir = Workdir(run)
    config = workdir.checked_config()
    if config is None:
        raise errors.Stop(f"{run} is not the workdir of a run: it holds no config.json")
    lines = read_metrics(workdir / "metrics.jsonl")
    view = View(lambda: start_training(config, run, uuid.uuid4().hex[:12], mode), required=True)
    for line in lines:
        view.log({f"train/{name}": value for name, value in line.items()})
    code = workdir.read_status().get("code", errors.AGAIN)
    view.finish(code, {"exit_code": code})
    said = f"{run}: {len(lines)} lines of metrics"
    if (run / "eval" / "documents.npz").exists():
        rows = records.rows(records.of_evaluation(records.read(run / "eval")))
        view = View(
            lambda: wandb_curves.start_evaluation(config, run, uuid.uuid4().hex[:12], mode),
            required=True,
        )
        wandb_curves.log_curves(view, rows, sorted((run / "plots").glob("*.png")))
        said += f", {len(rows)} rows of curves"
    print(said)


if __name__ == "__main__":
    sys.exit(main())
