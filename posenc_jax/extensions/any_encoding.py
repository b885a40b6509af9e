"""Extensions that fit any encoding."""

import numpy as np

from posenc_jax.checks import LARGEST_SCALE, positive, token_count, whole_number
from posenc_jax.encoding import Encoding, fixed
from posenc_jax.extensions._record import Kind, check_log_length, extension
from posenc_jax.layers import bearer, overrides


def _is_scaled(encoding: Encoding) -> bool:
    """True if an encoding, or one inside it, scales queries."""
    inner = any(map(_is_scaled, encoding.named_parts().values()))
    return encoding.logn or encoding.temperature is not None or inner


def _is_sharp(encoding: Encoding) -> bool:
    return encoding.topk is not None or any(map(_is_sharp, encoding.named_parts().values()))


def _has_softmax(encoding: Encoding) -> bool:
    """True if attention in some layer is a softmax over keys."""
    layers = [encoding.layer(index) for index in range(encoding.period)]
    owners = [bearer(layer, "attend") for layer in layers if overrides(layer, "attend")]
    return len(owners) < len(layers) or any(owner.attends_by_softmax for owner in owners)


def is_scalable(encoding: Encoding) -> bool:
    """True if factors on queries change some layer; the norm of retention cancels them."""
    return not all(overrides(encoding.layer(i), "recur") for i in range(encoding.period))


NOTHING = Kind("nothing", lambda encoding: False)
TEMPERATURE = Kind("temperature", _is_scaled)
WINDOW = Kind("window", lambda encoding: encoding.window is not None)
TOPK = Kind("keys", _is_sharp)


@extension(NOTHING, scale="none")
def none(encoding: Encoding, scale: float) -> Encoding:
    """Leave the encoding as trained."""
    return encoding


@extension(TEMPERATURE, scale="none", suits=is_scalable)
def logn(encoding: Encoding, scale: float) -> Encoding:
    """Su 2021, https://kexue.fm/archives/8823: scale query p by max(1, ln(p + 1) / ln L)."""
    check_log_length("logn", encoding)
    return encoding.replace(logn=True)


@extension(TEMPERATURE, scale="none", suits=is_scalable, in_all_layers=True)
def temperature(encoding: Encoding, scale: float, *, factor: float) -> Encoding:
    """Multiply all products of queries and keys by one factor."""
    shape = () if encoding.layers is None else (encoding.layers,)
    factor = positive("factor", factor, at_most=LARGEST_SCALE)
    return encoding.replace(temperature=fixed(np.full(shape, factor)))


@extension(TOPK, scale="none", suits=_has_softmax, trains=False)
def topk(encoding: Encoding, scale: float, *, k: int) -> Encoding:
    """Let a query attend to the keys of its k highest logits alone, and to those of equal logits.

    What this restores beyond L was lost by dilution; what it does not was lost by position, or
    needs more keys.
    """
    return encoding.replace(topk=whole_number("k", k, at_least=1))


@extension(WINDOW, scale="none", shown=("size",), in_all_layers=True)
def window(encoding: Encoding, scale: float, *, size: int | None = None) -> Encoding:
    """Let a query see only the last `size` tokens, itself included (None: L)."""
    size = encoding.dims.train_length if size is None else size
    return encoding.windowed(token_count("size", size))
