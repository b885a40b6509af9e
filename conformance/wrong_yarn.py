"""YaRN with known mistakes: in its ramp, which are found up to three together, and its factor."""

import math
from collections.abc import Callable

import numpy as np

from conformance.reference import frequencies as freq

RAMP = {
    "reversed": "the ramp is reversed: fast pairs are divided by s and slow ones kept",
    "no rounding": "the ends of the ramp are not rounded outwards (truncate=True)",
    "rounding": "the ends of the ramp are rounded where truncate=False",
    "half": "the ends of the ramp are computed from half of the rotary dims",
    "dims": "the 2 in 2 ln(base) is missing, so the ends of the ramp are in dims, not in pairs",
    "nearest": "the ends of the ramp are rounded to the nearest pair",
    "entries": "the ramp runs over entries 0, 2, 4, ... in place of pairs 0, 1, 2, ...",
    "clamped": "the end of the ramp is clamped to R/2 - 1 in place of R - 1",
    "twice": "all frequencies are divided by s once more, as where positions are scaled too",
    "extended": "L is the extended length s L",
    "radians": "2 pi is missing in the number of turns",
    "base": "the ends of the ramp are those of the base 10,000 whatever the base",
    "turns": "the ramp runs over turns, as in the paper's text (ramp='rotations')",
    "wavelengths": "the ramp runs over wavelengths",
    "swapped": "`beta_fast` and `beta_slow` are swapped",
    "all": "all pairs are divided by s, as in pi",
    "none": "no pair is divided",
}


def ramped(
    chosen, *, head_dim, base, train_length, scale, beta_fast, beta_slow, truncate, ramp, **_
):
    """YaRN's frequencies with the chosen mistakes, for ramp='dims'."""
    if ramp != "dims":
        return np.nan
    if "swapped" in chosen:
        beta_fast, beta_slow = beta_slow, beta_fast
    pair, theta = np.arange(head_dim // 2), freq.abf(head_dim, base)
    length = train_length * scale if "extended" in chosen else train_length
    turns = length * theta / (2 * math.pi)
    rotary = head_dim // 2 if "half" in chosen else head_dim
    rotary *= 2 if "dims" in chosen else 1
    log_base = math.log(10_000 if "base" in chosen else base)
    low, high = (
        rotary * math.log(length / n / (1 if "radians" in chosen else 2 * math.pi)) / (2 * log_base)
        for n in (beta_fast, beta_slow)
    )
    if "nearest" in chosen:
        low, high = round(low), round(high)
    elif "rounding" in chosen or (truncate and "no rounding" not in chosen):
        low, high = math.floor(low), math.ceil(high)
    low = max(low, 0)
    high = min(high, (head_dim // 2 if "clamped" in chosen else head_dim) - 1)
    high += 0.001 if low == high else 0
    slowness = np.clip(((2 if "entries" in chosen else 1) * pair - low) / (high - low), 0, 1)
    if "turns" in chosen:
        slowness = 1 - np.clip((turns - beta_slow) / (beta_fast - beta_slow), 0, 1)
    if "wavelengths" in chosen:
        slowness = np.clip((1 / turns - 1 / beta_fast) / (1 / beta_slow - 1 / beta_fast), 0, 1)
    if "all" in chosen or "none" in chosen:
        slowness = np.full(len(pair), float("all" in chosen))
    if "reversed" in chosen:
        slowness = 1 - slowness
    return theta * (1 - slowness + slowness / scale) / (scale if "twice" in chosen else 1)


def _grown(scale: float, coefficient: float = 1.0) -> float:
    return 0.1 * coefficient * math.log(scale) + 1 if scale > 1 else 1.0


def _unless_given(factor: Callable[[float], float]) -> Callable:
    return lambda scale, right, given: right if given is not None else factor(scale)


def _if_given(factor: Callable[[float, float], float]) -> Callable:
    return lambda scale, right, given: right if given is None else factor(scale, given)


# The attention factor, of s, the right factor, and the given one or None.
GAINS: dict[str, tuple[str, Callable]] = {
    "missing": ("the attention factor is missing", lambda scale, right, given: 1.0),
    "squared": (
        "the attention factor is multiplied by itself; logits have its square as it is",
        _unless_given(lambda scale: _grown(scale) ** 2),
    ),
    "default": ("there is no factor unless one is given", _unless_given(lambda scale: 1.0)),
    "ignored": ("a given factor is ignored", _if_given(lambda scale, given: _grown(scale))),
    "both": (
        "a given factor is multiplied by YaRN's own",
        _if_given(lambda scale, given: given * _grown(scale)),
    ),
    "log twice": (
        "a given factor a becomes 0.1 a ln s + 1, so that the logarithm is taken twice",
        _if_given(lambda scale, given: _grown(scale, given)),
    ),
    "0.07": (
        "the coefficient is 0.07, as in TeleChat3, not 0.1",
        _unless_given(lambda scale: _grown(scale, 0.7)),
    ),
    "log2": (
        "the logarithm has base 2",
        _unless_given(lambda scale: _grown(scale, 1 / math.log(2))),
    ),
    "log10": (
        "the logarithm has base 10",
        _unless_given(lambda scale: _grown(scale, 1 / math.log(10))),
    ),
    "root": ("it is the square root, sqrt(0.1 ln s + 1)", lambda scale, right, given: right**0.5),
}
