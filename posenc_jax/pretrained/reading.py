"""Read values of somebody else's file, each by its rule."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from posenc_jax.fields import Rule

REQUIRED: Any = object()
SHOWN = 200  # letters of a line about a value, which may be long


class Key(NamedTuple):
    """A key of a file."""

    rule: Rule
    usual: Any = REQUIRED  # where the file leaves it out; None: null is allowed too


def read(place: str, values: Any, keys: Mapping[str, Key]) -> dict[str, Any]:
    """The values of these keys; a ValueError names the place and all that is wrong.

    Other keys are ignored.
    """
    an_object(place, values)
    found = {name: values.get(name, key.usual) for name, key in keys.items()}
    problems = []
    for name, key in keys.items():
        try:
            if found[name] is REQUIRED:
                raise ValueError(f"{name} is missing")
            if found[name] is not key.usual:
                key.rule(name, found[name])
        except (ValueError, RecursionError) as error:  # of a value nested too deeply to be shown
            problems.append(str(error)[:SHOWN])
    if problems:
        raise ValueError(f"{place}: {'; '.join(problems)}")
    return found


def optional(rule: Rule) -> Rule:
    """Rule for a value or null."""
    return lambda name, value: value is None or rule(name, value)


def only(*allowed: Any) -> Rule:
    """Rule for a value that has a form here."""

    def rule(name: str, value: Any):
        if value not in allowed:
            choices = " or ".join(map(repr, allowed))
            raise ValueError(f"{name} = {value!r} is not supported, only {choices}")

    return rule


def each(rule: Rule) -> Rule:
    """Rule for a list."""

    def of_list(name: str, value: Any):
        if not isinstance(value, list):
            raise ValueError(f"{name} must be a list; got {value!r}")
        for number, one in enumerate(value):
            rule(f"{name}[{number}]", one)

    return of_list


def text(name: str, value: Any):
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got {value!r}")


def an_object(name: str, value: Any):
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object; got {value!r}")
