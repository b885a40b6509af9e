"""The programs behind the command lines: train and evaluate a run."""

from collections.abc import Sequence
from pathlib import Path

from posenc_jax.config import Evaluation, Training
from posenc_jax.evaluation import evaluate, planning, protocols, records, table
from posenc_jax.evaluation.ngrams import read_yardsticks
from posenc_jax.plots import curves
from posenc_jax.runs.processes import is_lead
from posenc_jax.runs.subject import run_config
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime.errors import DONE
from posenc_jax.runtime.terminal import say
from posenc_jax.tracking.wandb import Curves, log_with_training
from posenc_jax.training.loop import train


def evaluate_run(
    config: Evaluation, workdir: Path, steps: Sequence[int | None] | None = (None,)
) -> Curves | None:
    """Evaluate checkpoints of a run, all of them if None, print its tables and draw its curves;
    None in processes other than the lead."""
    evaluated, pictures = measure(config, workdir, steps)
    if not is_lead():
        return None
    rows = records.rows(evaluated.cells)
    say(table.table(evaluated.cells))
    say(table.without_null(rows) or "")
    say("\n".join(map(str, [workdir / "eval" / "curves.csv", *pictures])))
    if len(evaluated.all_names) > 1:
        names = ", ".join(evaluated.all_names)
        say(f"curves.csv holds the evaluations {names}; this one is {evaluated.name}")
    return Curves(rows, protocols.against_length(), pictures, evaluated.facts)


def measure(
    config: Evaluation, workdir: Path, steps: Sequence[int | None] | None = (None,)
) -> tuple[evaluate.Evaluated, list[Path]]:
    """Evaluate checkpoints of a run and draw its curves, without printing tables."""
    evaluated = evaluate.evaluate(config, workdir, steps)
    if not is_lead():
        return evaluated, []
    ngrams = read_yardsticks(workdir / "eval")
    return evaluated, curves.draw(evaluated.every, workdir / "plots", evaluated.name, ngrams)


def train_and_evaluate(config: Training, evaluation: Evaluation, workdir: Path) -> int:
    """Train a run and evaluate it once it is done, in one wandb run; the exit code."""
    planning.check(evaluation, config)
    planning.check_readable(evaluation, config)
    code = train(config, workdir)
    if code != DONE:
        return code
    evaluated = evaluate_run(evaluation, workdir)
    assert evaluated is not None  # of one process
    log_with_training(run_config(workdir), workdir, evaluated)
    Workdir(workdir).set_evaluated(evaluation)
    return DONE
