"""Validate the configuration of an evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from posenc_jax.config import Evaluation, Training, check, schema
from posenc_jax.runtime.errors import ConfigError


def load(
    recipe: ConfigDict | Mapping[str, Any],
    run: Training | None = None,
    *,
    more: Sequence[str] = (),
) -> Evaluation:
    """The typed configuration of an evaluation, or a ConfigError with every mistake, one a line:
    structure and numbers first, which need no jax; then what protocols and extensions say, and what
    does not fit a run that is to be trained."""
    problems = [*check.mistakes_in_evaluation(recipe), *more]
    if not problems:
        given = recipe.to_dict() if isinstance(recipe, ConfigDict) else recipe
        config = schema.evaluation_from_fields(given)
        problems = mistakes(config) + ([] if run is None else _ahead(config, run))
        if not problems:
            return config
    raise ConfigError("\n".join(problems))


def mistakes(config: Evaluation) -> list[str]:
    """Mistakes that protocols and extensions find."""
    from posenc_jax.evaluation import methods, protocols

    return protocols.mistakes(config) + methods.mistakes(config.extensions)


def _ahead(config: Evaluation, run: Training) -> list[str]:
    from posenc_jax.config import building
    from posenc_jax.evaluation import planning

    problems = building.mistakes(run)
    if not problems:
        planning.check(config, run)
    return problems
