"""Train and evaluate from Python: the programs as functions."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from posenc_jax import backend, configuration, lineage, neighbours, packages, validation
from posenc_jax.checks import known
from posenc_jax.configuration import Config
from posenc_jax.errors import ConfigError
from posenc_jax.evaluation import judging

Result = TypeVar("Result")


def recipe(name: str, fields: Mapping[str, Any] | None = None, *, size: str | None = None):
    """Return a configuration from configs/, overridden by fields such as {"model.width": 64}."""
    stems = [path.stem for path in (neighbours.HERE / "configs").glob("*.py")]
    known("recipe", name, set(stems) - {"base", "eval", "__init__"})
    make = neighbours.recipe(name).get_config
    return _with(make() if size is None else make(size), fields)


def train(config: Config, workdir: str | Path) -> int:
    """Train or resume the run in a workdir, and return train.py's exit code."""
    from posenc_jax.runs.workdir import Workdir
    from posenc_jax.training.loop import train

    existing = Workdir(workdir).config()
    _refuse(validation.validate(config, existing) + validation.mistakes_in_workdir(workdir))
    backend.configure()
    return _explained(lambda: train(lineage.resolved(config, existing), Path(workdir)))


def evaluate(
    workdir: str | Path, fields: Mapping[str, Any] | None = None, *, step: int | None = None
) -> list[dict]:
    """Evaluate a run, draw plots/ and return its rows of eval/curves.csv."""
    config = _with(configuration.evaluation(), fields)
    backend.configure()
    _refuse(_explained(lambda: judging.mistakes(config)) + validation.mistakes_in_workdir(workdir))
    return _explained(lambda: _evaluate(config, Path(workdir), step))


def _evaluate(config: Config, workdir: Path, step: int | None) -> list[dict]:
    from posenc_jax import programs
    from posenc_jax.evaluation import records

    evaluated, _ = programs.measure(config, workdir, [step])
    return [*records.rows(evaluated.cells), *evaluated.left_out]


def _with(config: Config, fields: Mapping[str, Any] | None) -> Config:
    with config.unlocked(), config.ignore_type():
        for name, value in (fields or {}).items():
            group, _, field = name.rpartition(".")
            place = config
            for part in filter(None, group.split(".")):
                known("field", part, place)
                place = place[part]
            place[field] = value
    return config


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError("\n".join(problems))


def _explained(body: Callable[[], Result]) -> Result:
    try:
        return body()
    except ModuleNotFoundError as error:
        raise ImportError(packages.missing(error) or str(error)) from error
