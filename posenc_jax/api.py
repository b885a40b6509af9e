"""Train and evaluate from Python: the programs as functions."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from ml_collections import ConfigDict

from posenc_jax.checks import known
from posenc_jax.config import Training, load, schema
from posenc_jax.registry import ROOT
from posenc_jax.runtime import backend
from posenc_jax.runtime.errors import missing

Result = TypeVar("Result")


def recipe(name: str, fields: Mapping[str, Any] | None = None, *, size: str | None = None):
    """Return a configuration from configs/, overridden by fields such as {"model.width": 64}."""
    stems = [path.stem for path in (ROOT / "configs").glob("*.py")]
    known("recipe", name, set(stems) - {"base", "eval", "__init__"})
    make = import_module(f"configs.{name}").get_config
    return _with(make() if size is None else make(size), fields)


def train(config: ConfigDict | Training, workdir: str | Path) -> int:
    """Train or resume the run in a workdir and return the exit code of train.py."""
    from posenc_jax.runs.workdir import Workdir
    from posenc_jax.training.loop import train

    backend.configure()
    recipe = schema.as_fields(config) if isinstance(config, Training) else config
    saved = Workdir(workdir).config()
    return _explained(lambda: train(load(recipe, saved), Path(workdir)))


def evaluate(
    workdir: str | Path, fields: Mapping[str, Any] | None = None, *, step: int | None = None
) -> list[dict]:
    """Evaluate a run and return its rows of eval/curves.csv; pictures go to plots/."""
    backend.configure()
    recipe = _with(schema.evaluation(), fields)
    return _explained(lambda: _evaluate(recipe, Path(workdir), step))


def _evaluate(recipe: ConfigDict, workdir: Path, step: int | None) -> list[dict]:
    from posenc_jax import programs
    from posenc_jax.evaluation import planning, records

    evaluated, _ = programs.measure(planning.load(recipe), workdir, [step])
    return [*records.rows(evaluated.cells), *evaluated.left_out]


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


def _explained(body: Callable[[], Result]) -> Result:
    try:
        return body()
    except ModuleNotFoundError as error:
        raise ImportError(missing(error) or str(error)) from error
