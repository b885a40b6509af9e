"""Checks of user input; errors state the allowed values."""

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real

IMPLEMENTATIONS = ("auto", "plain", "blockwise", "kernel")  # of attention
MOST = 2**31 - 1  # largest int32, the integer type of jax
FARTHEST = 1 << 24  # float32, used for angles, distinguishes positions up to here
LARGEST_SCALE = 1e6  # of an extension or a factor on logits, which stay finite in float32
LEAST, LARGEST = (
    1e-30,
    1e30,
)  # float32 can represent these, their inverses and products with positions


def whole_number(name: str, value, *, at_least: int, at_most: int = MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}; got {value!r}")
    if int(value) > at_most:
        raise ValueError(f"{name} must be at most {at_most:,}; got {value:,}")
    return int(value)


def token_count(name: str, value, *, at_least: int = 1) -> int:
    """Check a number of tokens or a distance in tokens."""
    return whole_number(name, value, at_least=at_least, at_most=FARTHEST)


def positive(name: str, value, *, above: float = 0.0, at_most: float = LARGEST) -> float:
    number = _float(value)
    if not above < number < math.inf:
        raise ValueError(f"{name} must be a finite number above {above:g}; got {value!r}")
    least = max(above, LEAST)
    if not least <= number <= at_most:
        raise ValueError(f"{name} must be a number from {least:g} to {at_most:g}; got {number:g}")
    return number


def finite(name: str, value) -> float:
    number = _float(value)
    if not abs(number) <= LARGEST:  # also true for NaN
        raise ValueError(
            f"{name} must be a finite number, at most {LARGEST:g} from 0; got {value!r}"
        )
    return number


def _float(value) -> float:
    """Convert a number to float, NaN if it is not a number."""
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # NumPy or JAX scalar
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def flag(name: str, value) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False; got {value!r}")
    return value


def flag_or_token(name: str, value):
    if not isinstance(value, bool) and value != "token":
        raise ValueError(f"{name} must be True, False or 'token'; got {value!r}")
    return value


def choice(name: str, value, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def known(kind: str, name, names: Iterable[str]) -> str:
    """Return a known name, or raise an error that suggests the closest one."""
    names = sorted(names)
    if name in names:
        return name
    near = difflib.get_close_matches(str(name), names, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}; {meant}have: {', '.join(names)}")


def may_be_of_hub(name: str) -> bool:
    """True if a name has the form of a Hugging Face Hub repository: `gpt2`, `OWNER/NAME`."""
    fits = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name)
    return bool(fits) and not name.endswith(".json")


def rotary_dims(head_dim: int, fraction: float, rotary_dim: int | None = None) -> int:
    positive("fraction", fraction)
    name, size = ("head_dim", head_dim) if rotary_dim is None else ("rotary_dim", rotary_dim)
    dims = fraction * size
    if fraction > 1 or dims % 2 or dims < 2:
        raise ValueError(
            f"fraction * {name} must be an even number from 2 to {name} = {size}; "
            f"got {fraction:g} * {size} = {dims:g}"
        )
    return int(dims)


def check_options(what: str, function: Callable, options: Iterable[str]):
    """Reject options that a function does not take, and require those without a default."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    allowed = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    options = set(options)
    for name in sorted(options):
        if not allowed:
            raise ValueError(f"{what} takes no options; got {name!r}")
        known(f"option of {what}:", name, allowed)
    missing = [n for n, p in allowed.items() if p.default is p.empty and n not in options]
    if missing:
        raise ValueError(f"{what} needs the option {missing[0]!r}; it takes: {', '.join(allowed)}")
