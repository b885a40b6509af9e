"""What is wrong with the configuration of an evaluation."""

from posenc_jax import validation
from posenc_jax.configuration import Config
from posenc_jax.errors import ConfigError


def mistakes(config: Config) -> list[str]:
    """Structure and numbers first, which need no jax; then what protocols and extensions say."""
    return validation.validate_evaluation(config) or _of_words(config)


def _of_words(config: Config) -> list[str]:
    from posenc_jax.evaluation import methods, protocols

    return protocols.mistakes(config) + methods.mistakes(config.extensions)


def mistakes_ahead(config: Config, run: Config) -> list[str]:
    """What structure and numbers do not tell, and what does not fit a run that is to be trained."""
    from posenc_jax import building

    wrong = _of_words(config) + building.mistakes(run)
    if wrong:
        return wrong
    from posenc_jax.evaluation import planning

    try:
        planning.check(config, run)
    except ConfigError as error:
        return [str(error)]
    return []
