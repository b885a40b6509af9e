"""The programs behind the command lines: train and evaluate a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.config import Evaluation, Training
from posenc_jax.errors import DONE
from posenc_jax.evaluation import evaluate, planning, records, table, yardsticks
from posenc_jax.evaluation.records import Measured
from posenc_jax.plots import curves
from posenc_jax.runs.processes import is_lead
from posenc_jax.runs.subject import run_config
from posenc_jax.terminal import say
from posenc_jax.tracking import curves as wandb_curves
from posenc_jax.tracking.wandb import Handover
from posenc_jax.training.loop import train


class Outcome(NamedTuple):
    """Results of an evaluation for wandb."""

    cells: list[Measured]
    pictures: list[Path]
    facts: Mapping[str, Any]


def evaluate_run(
    config: Evaluation, workdir: Path, steps: Sequence[int | None] | None = (None,)
) -> Outcome | None:
    """Evaluate checkpoints of a run, all of them if None, print its tables and draw its curves;
    None in processes other than the lead."""
    evaluated, pictures = measure(config, workdir, steps)
    if not is_lead():
        return None
    say(table.table(evaluated.cells))
    say(table.without_null(records.rows(evaluated.cells)) or "")
    say("\n".join(map(str, [workdir / "eval" / "curves.csv", *pictures])))
    if len(evaluated.all_names) > 1:
        names = ", ".join(evaluated.all_names)
        say(f"curves.csv holds the evaluations {names}; this one is {evaluated.name}")
    return Outcome(evaluated.cells, pictures, evaluated.facts)


def measure(
    config: Evaluation, workdir: Path, steps: Sequence[int | None] | None = (None,)
) -> tuple[evaluate.Evaluated, list[Path]]:
    """Evaluate checkpoints of a run and draw its curves, without printing tables."""
    evaluated = evaluate.evaluate(config, workdir, steps)
    if not is_lead():
        return evaluated, []
    ngrams = yardsticks.read(workdir / "eval")
    return evaluated, curves.draw(evaluated.every, workdir / "plots", evaluated.name, ngrams)


def train_and_evaluate(config: Training, evaluation: Evaluation, workdir: Path) -> int:
    """Train a run and evaluate it once it is done, in one wandb run; the exit code."""
    planning.check_readable(evaluation, config)
    with Handover() as handover:
        code = train(config, workdir, handover.training)
        if code != DONE:
            return code
        outcome = evaluate_run(evaluation, workdir)
        assert outcome is not None  # of one process
        wandb_curves.log_with_training(run_config(workdir), workdir, *outcome, handover)
    return DONE
