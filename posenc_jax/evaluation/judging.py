"""What is wrong with the configuration of an evaluation, whichever run it is of."""

from posenc_jax import validation
from posenc_jax.configuration import Config


def mistakes(config: Config) -> list[str]:
    """Structure and numbers first, which need no jax; then what protocols and extensions say."""
    wrong = validation.validate_evaluation(config)
    if wrong:
        return wrong
    from posenc_jax.evaluation import methods, protocols

    return protocols.mistakes(config) + methods.mistakes(config.extensions)
