"""Check the configuration of an evaluation."""

from posenc_jax import validation
from posenc_jax.configuration import Config
from posenc_jax.errors import ConfigError


def mistakes(config: Config) -> list[str]:
    """Mistakes in structure and numbers, which need no jax, else in protocols and extensions."""
    return validation.validate_evaluation(config) or _mistakes_in_lists(config)


def _mistakes_in_lists(config: Config) -> list[str]:
    from posenc_jax.evaluation import methods, protocols

    return protocols.mistakes(config) + methods.mistakes(config.extensions)


def mistakes_ahead(config: Config, run: Config) -> list[str]:
    """Mistakes in protocols and extensions, and conflicts with a run that is not trained yet."""
    from posenc_jax import building

    problems = _mistakes_in_lists(config) + building.mistakes(run)
    if problems:
        return problems
    from posenc_jax.evaluation import planning

    try:
        planning.check(config, run)
    except ConfigError as error:
        return [str(error)]
    return []
