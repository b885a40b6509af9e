"""Parse and write extensions such as `yarn:8:beta_fast=16+logn`. Nothing here imports jax.

A name comes first, then a scale and options after colons; `+` composes, but only before a letter:
`1e+3` is a number. Slashes separate the entries of a list: `longrope:4:lambdas=1/1.5/2/4`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from posenc_jax.checks import positive


class Part(NamedTuple):
    """One extension of a composition, as written."""

    name: str
    scale: float | None  # None: not written
    options: Mapping[str, Any]


def parts(text: str) -> list[Part]:
    """The extensions that a text composes, in its order."""
    if not isinstance(text, str):
        raise ValueError(f"an extension is a name, such as 'yarn'; got {text!r}")
    return [_part(word) for word in re.split(r"\+(?=[A-Za-z_])", text)]


def _part(word: str) -> Part:
    name, *settings = word.strip().split(":")
    scale, options = None, {}
    for setting in settings:
        option, equals, written = setting.partition("=")
        if equals:
            if not option.isidentifier() or option in options:
                raise ValueError(f"{word!r} must give each option once, as option=value")
            options[option] = value(written)
        elif scale is None:
            scale = positive(f"the scale of {name}", value(setting), at_most=math.inf)
        else:
            raise ValueError(f"{word!r} has two scales, {scale:g} and {setting}; give one")
    return Part(name, scale, options)


def text(chosen: Sequence[Part]) -> str:
    """Write a composition as text."""
    words = []
    for part in chosen:
        scale = [] if part.scale is None else [_written(part.scale)]
        options = [f"{name}={_written(value)}" for name, value in part.options.items()]
        words.append(":".join([part.name, *scale, *options]))
    return "+".join(words)


def with_scale(name: str, scale: float) -> str:
    """Write the scale behind the first name: `yarn:beta_fast=16` at 8 is `yarn:8:beta_fast=16`."""
    first, mark, rest = re.fullmatch(r"([^:+]*)([:+]?)(.*)", name).groups()  # pyright: ignore
    return f"{first}:{scale:g}{mark}{rest}"


def value(written: str) -> Any:
    """A number in ASCII digits (1e3 is an int), True or False, a tuple of them, or the text."""
    if written[:1] in ("(", "[") and written[-1:] in (")", "]"):
        return tuple(value(word.strip()) for word in written[1:-1].split(",") if word.strip())
    if "/" in written:
        return tuple(value(word) for word in written.split("/"))
    if written in ("True", "False"):
        return written == "True"
    plain = written.isascii() and "_" not in written  # Python takes 1_28 and full-width digits
    for kind in (int, _number) if plain else ():
        try:
            return kind(written)
        except ValueError:
            continue
    return written


def _number(written: str) -> float:
    number = float(written)
    return int(number) if "." not in written and _is_whole(number) else number


def _is_whole(number: float) -> bool:
    return number.is_integer() and abs(number) < 1e15


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "/".join(_written(entry) for entry in value)
    if isinstance(value, float) and _is_whole(value):
        return str(int(value))
    return str(value)
