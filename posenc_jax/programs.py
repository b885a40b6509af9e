"""What the programs do once their command line is right."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.config import Evaluation, Training
from posenc_jax.errors import DONE
from posenc_jax.evaluation import evaluate, records, table, texts, wandb_curves, yardsticks
from posenc_jax.evaluation.records import Measured
from posenc_jax.plots import curves
from posenc_jax.runs.subject import run_config
from posenc_jax.terminal import say
from posenc_jax.tracking.wandb import Handover
from posenc_jax.training.loop import train


class Outcome(NamedTuple):
    """What wandb is shown of an evaluation."""

    cells: list[Measured]
    pictures: list[Path]
    facts: Mapping[str, Any]


def evaluate_run(
    config: Evaluation, workdir: Path, steps: Sequence[int | None] = (None,)
) -> Outcome:
    """Evaluate checkpoints of a run, print its tables and draw its curves."""
    done, pictures = measure(config, workdir, steps)
    say(table.table(done.cells))
    say(table.without_null(records.rows(done.cells)) or "")
    say("\n".join(map(str, [workdir / "eval" / "curves.csv", *pictures])))
    if len(done.all_names) > 1:
        names = ", ".join(done.all_names)
        say(f"curves.csv holds the evaluations {names}; this one is {done.name}")
    return Outcome(done.cells, pictures, done.facts)


def measure(
    config: Evaluation, workdir: Path, steps: Sequence[int | None] = (None,)
) -> tuple[evaluate.Evaluated, list[Path]]:
    """Evaluate checkpoints of a run and draw its curves; prints no table."""
    done = evaluate.evaluate(config, workdir, steps)
    counted = yardsticks.read(workdir / "eval")
    return done, curves.draw(done.every, workdir / "plots", done.name, counted)


def train_readable(config: Training, evaluation: Evaluation, workdir: Path) -> int:
    """Train a run whose evaluation, which follows elsewhere, has something to read."""
    if not config.distributed:
        texts.check_readable(evaluation, config)
    return train(config, workdir)


def train_and_evaluate(config: Training, evaluation: Evaluation, workdir: Path) -> int:
    """Train a run and evaluate it once it is done, in one wandb run; the exit code."""
    texts.check_readable(evaluation, config)
    with Handover() as handover:
        code = train(config, workdir, handover.training)
        if code != DONE:
            return code
        outcome = evaluate_run(evaluation, workdir)
        wandb_curves.log_with_training(run_config(workdir), workdir, *outcome, handover)
    return DONE
