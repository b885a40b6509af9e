"""The encoding of a run with one extension, for rows of up to a given length."""

from posenc_jax import extensions
from posenc_jax.config import Evaluation
from posenc_jax.config.resolve import reached
from posenc_jax.config.schema import words
from posenc_jax.encoding import Encoding
from posenc_jax.errors import ConfigError
from posenc_jax.evaluation import methods, planning
from posenc_jax.runs.subject import Subject


def extended(subject: Subject, extension: str, max_length: int | None) -> tuple[Encoding, int]:
    """The encoding of a run with an extension, and the length of the longest row it reads.

    An extension that depends on the length read is applied once, for that length.
    """
    if len(words(extension)) != 1 or extension == "all":
        raise ConfigError(f"give one extension; got {extension!r}")
    wrong = methods.mistakes(extension)
    if wrong:
        raise ConfigError("; ".join(wrong))
    planning.unfit(Evaluation(extensions=extension), subject)
    scales = [part.scale for _, part in extensions.named(extension) if part.scale is not None]
    if max_length is None and extension != "none" and not scales:
        raise ConfigError(f"extension {extension!r} has no scale; give a maximum length")
    if max_length is None:
        max_length = reached(scales[0], subject.original) if scales else subject.trained
    ratio = max_length / subject.original
    (method,) = methods.methods(extension, subject.plain, ratio)
    encoding = method.applied(subject.plain, subject.parts.encoding, ratio)
    if encoding.reach is not None and max_length > encoding.reach:
        raise ConfigError(
            f"encoding {subject.plain.name!r} with extension {extension!r} reaches "
            f"{encoding.reach} positions; the maximum length is {max_length}"
        )
    return encoding.windowed(method.limit), max_length
