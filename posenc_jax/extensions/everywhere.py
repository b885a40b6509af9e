"""Extensions that fit any encoding."""

import numpy as np

from posenc_jax.checks import LARGEST_SCALE, positive, token_count
from posenc_jax.encoding import Encoding, Wrapper, fixed
from posenc_jax.extensions._record import Kind, check_log_length, extension


def _is_scaled(encoding: Encoding) -> bool:
    """Whether queries are scaled here or in an encoding that this one is around."""
    inner = isinstance(encoding, Wrapper) and _is_scaled(encoding.inner)
    return encoding.logn or encoding.temperature is not None or inner


NOTHING = Kind("nothing", lambda encoding: False)
TEMPERATURE = Kind("temperature", _is_scaled)
WINDOW = Kind("window", lambda encoding: encoding.window is not None)


@extension(NOTHING, scale="none")
def none(encoding: Encoding, scale: float) -> Encoding:
    """The encoding as it was trained."""
    return encoding


@extension(TEMPERATURE, scale="none")
def logn(encoding: Encoding, scale: float) -> Encoding:
    """Su 2021, https://kexue.fm/archives/8823: the query at p times max(1, ln(p + 1) / ln L)."""
    check_log_length("logn", encoding)
    return encoding.replace(logn=True)


@extension(TEMPERATURE, scale="none")
def temperature(encoding: Encoding, scale: float, *, factor: float) -> Encoding:
    """One factor on all products of queries and keys."""
    shape = () if encoding.layers is None else (encoding.layers,)
    factor = positive("factor", factor, at_most=LARGEST_SCALE)
    return encoding.replace(temperature=fixed(np.full(shape, factor)))


@extension(WINDOW, scale="none", shown=("size",))
def window(encoding: Encoding, scale: float, *, size: int | None = None) -> Encoding:
    """A query sees only the last `size` tokens, itself included; None: L, as trained."""
    size = encoding.dims.train_length if size is None else size
    return encoding.replace(window=encoding.narrowed(token_count("size", size)))
