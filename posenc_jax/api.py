"""Train and evaluate a run: what programs and notebooks call."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from posenc_jax.checks import known
from posenc_jax.config import Evaluation, Training, load, schema
from posenc_jax.registry import ROOT
from posenc_jax.runtime import backend
from posenc_jax.runtime.errors import DONE, DataError
from posenc_jax.runtime.terminal import say, warn

if TYPE_CHECKING:
    import pandas

    from posenc_jax.evaluation.evaluate import Evaluated
    from posenc_jax.tracking.wandb import Curves


def recipe(name: str, fields: Mapping[str, Any] | None = None, *, size: str | None = None):
    """Return a configuration from configs/, overridden by fields such as {"model.width": 64}."""
    stems = [path.stem for path in (ROOT / "configs").glob("*.py")]
    known("recipe", name, set(stems) - {"base", "eval", "__init__"})
    make = import_module(f"configs.{name}").get_config
    return _with(make() if size is None else make(size), fields)


def train(config: ConfigDict | Training, workdir: str | Path) -> int:
    """Train or resume the run in a workdir and return the exit code of train.py."""
    backend.configure()
    recipe = schema.as_fields(config) if isinstance(config, Training) else config
    from posenc_jax.runs.workdir import Workdir
    from posenc_jax.training import loop

    return loop.train(load(recipe, Workdir(workdir).config()), Path(workdir))


def evaluate(
    workdir: str | Path, fields: Mapping[str, Any] | None = None, *, step: int | None = None
) -> list[dict]:
    """Evaluate a run and return its rows of eval/curves.csv; pictures go to plots/."""
    backend.configure()
    recipe = _with(schema.evaluation(), fields)
    from posenc_jax.evaluation import check, evaluate

    evaluated = evaluate.evaluate(check.load(recipe), Path(workdir), [step])
    _draw(workdir, evaluated)
    return [*evaluated.rows, *evaluated.left_out]


def curves(
    runs: str | Path | Sequence[str | Path], evaluation: str | None = None
) -> "pandas.DataFrame":
    """Rows of one evaluation of the newest checkpoints of runs, given by their folders or that of
    their sweep; missing numbers are nan, missing names empty."""
    import pandas

    from posenc_jax.evaluation import compare, protocols, records
    from posenc_jax.report.runs import runs_in

    folders = [runs] if isinstance(runs, str | Path) else runs
    named = [str(folder) for folder in runs_in(map(Path, folders))]
    cells = compare.by_name(compare.readable(named, evaluation or ""))
    shown = {cell.facts["evaluation"] for cell in cells}
    if len(shown) > 1:
        raise DataError(
            f"the newest evaluations of these runs are {', '.join(sorted(shown))}: name one"
        )
    frame = pandas.DataFrame(records.rows(cells), columns=list(protocols.columns()))
    words = ["method", "flag", *(name for name, kind in protocols.facts().items() if kind is str)]
    numbers = frame.columns.difference(words)
    frame[words] = frame[words].fillna("").astype(str)
    frame[numbers] = frame[numbers].apply(pandas.to_numeric)
    return frame


def show(workdir: Path, evaluated: "Evaluated", *, chosen: bool = False) -> "Curves | None":
    """Print the tables of an evaluation and draw its curves; None in processes other than the lead.

    Unless the protocols were `chosen`, only the table of the first is printed.
    """
    from posenc_jax.evaluation import protocols, table
    from posenc_jax.tracking.wandb import Curves

    if not evaluated.rows:
        return None
    pictures = _draw(workdir, evaluated)
    chosen = chosen or evaluated.facts["evaluation"]["protocols"] != Evaluation.protocols
    say(table.table(evaluated.rows, "" if chosen else protocols.HEADLINE))
    say(table.without_null(evaluated.rows) or "")
    file = workdir / "eval" / "curves.csv"
    say("\n".join(map(str, [file, *pictures])))
    if len(evaluated.all_names) > 1:
        names = ", ".join(evaluated.all_names)
        say(f"curves.csv holds the evaluations {names}; this one is {evaluated.name}")
    return Curves(file, evaluated.rows, pictures, evaluated.facts)


def train_and_evaluate(config: Training, evaluation: Evaluation, workdir: Path) -> int:
    """Train a run and evaluate it once it is done, in one wandb run; the exit code."""
    from posenc_jax.evaluation import check, evaluate
    from posenc_jax.runs.subject import run_config
    from posenc_jax.runs.workdir import Workdir
    from posenc_jax.tracking.wandb import log_job, log_with_training
    from posenc_jax.training import loop

    check.refuse_unfit(evaluation, config)
    readable = partial(check.refuse_unreadable, evaluation, config)
    before = Workdir(workdir).config()
    code = loop.train(config, workdir, readable)
    if code != DONE:
        return code
    if before is not None and before.wandb.job != config.wandb.job:
        log_job(run_config(workdir), workdir)
    curves = show(workdir, evaluate.evaluate(evaluation, workdir))
    assert curves is not None  # of one process
    log_with_training(run_config(workdir), workdir, curves)
    Workdir(workdir).set_evaluated(evaluation)
    return DONE


def _draw(workdir: str | Path, evaluated: "Evaluated") -> list[Path]:
    """Draw the curves of an evaluation in plots/."""
    if not evaluated.rows:
        return []
    try:
        import matplotlib  # noqa: F401

        from posenc_jax.report import pictures
        from posenc_jax.report.ranking import rankings
        from posenc_jax.report.runs import read_runs
    except ModuleNotFoundError as error:
        warn(f"no pictures: {error.name} is not installed here")
        return []
    data = read_runs([Path(workdir)], evaluated.name)
    folder = Path(workdir) / "plots"
    return pictures.draw(data, rankings(data.runs), folder, evaluation=evaluated.name)


def _with(config: ConfigDict, fields: Mapping[str, Any] | None) -> ConfigDict:
    with config.unlocked(), config.ignore_type():
        for name, value in (fields or {}).items():
            group, _, field = name.rpartition(".")
            place: Any = config
            for part in filter(None, group.split(".")):
                known("field", part, place)
                place = place[part]
            if name in ("data", "wandb") and isinstance(value, Mapping):
                _with(place[field], value)  # other fields of the group stay
            else:
                place[field] = value.item() if isinstance(value, np.generic) else value
    return config
