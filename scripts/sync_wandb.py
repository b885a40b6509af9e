"""python scripts/sync_wandb.py RUN [RUN ...] [--mode=online|offline]

Writes metrics.jsonl of a run, and the curves of its evaluations, to new wandb runs. For runs
trained offline or disconnected from wandb, and resumed runs with duplicate lines there.
"""

import argparse
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

from posenc_jax import errors, terminal
from posenc_jax.data.texts import HELD_OUT
from posenc_jax.evaluation import records, sums_file
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.runs.workdir import Workdir
from posenc_jax.tracking import curves
from posenc_jax.tracking.wandb import View, start_training


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--mode", choices=("online", "offline"), default="online")
    options = parser.parse_args(argv[1:])
    return terminal.code_of(lambda: [sync(run, options.mode) for run in options.runs])


def sync(run: Path, mode: str) -> None:
    workdir = Workdir(run)
    config = workdir.checked_config()
    if config is None:
        raise errors.Stop(f"{run} is not the workdir of a run: it has no config.json")
    lines = read_metrics(workdir / "metrics.jsonl")
    view = View(lambda: start_training(config, run, uuid.uuid4().hex[:12], mode), required=True)
    for line in lines:
        view.log({f"train/{name}": value for name, value in line.items()})
    code = workdir.read_status().get("code", errors.AGAIN)
    view.finish(code, {"exit_code": code})
    summary = f"{run}: {terminal.counted(len(lines), 'line')} of metrics"
    if sums_file.exists(run / "eval"):
        cells = records.read(run / "eval")
        names = dict.fromkeys(cell.facts["evaluation"] for cell in cells)
        for name in names:
            view = View(
                lambda: curves.start_evaluation(config, run, uuid.uuid4().hex[:12], mode),
                required=True,
            )
            rows = records.rows(records.of_evaluation(cells, name))
            curves.log_curves(view, rows, pictures(run, name, names))
        rows = records.rows(cells)
        summary += f", {terminal.counted(len(rows), 'row')} of curves"
    terminal.say(summary)


def pictures(run: Path, evaluation: str, others: Iterable[str]) -> list[Path]:
    """List the plots of one evaluation, whose file names end in its name unless held-out."""

    def of(path: Path) -> str:
        """The evaluation of a plot: the longest name that it ends in."""
        ends = [name for name in others if path.stem.endswith(f"-{name}")]
        return max(ends, key=len, default=HELD_OUT)

    return [path for path in sorted((run / "plots").glob("*.png")) if of(path) == evaluation]


if __name__ == "__main__":
    sys.exit(terminal.program(main))
