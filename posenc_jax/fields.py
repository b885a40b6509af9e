"""A field of a configuration: its default, what is said of it and the rule for it, each once.

Nothing here imports jax.
"""

import dataclasses
import math
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from posenc_jax.checks import choice, flag, positive, whole_number

Rule = Callable[[str, Any], object]  # (name, value); a ValueError says what is wrong


def default(value: Any, about: str = "", rule: Rule | None = None, **facts: Any) -> Any:
    """A dataclass field and its default; where that is None, no rule is asked about None."""
    metadata = {"about": about, "rule": rule, **facts}
    return dataclasses.field(default=value, metadata=metadata)


def within(inner: type) -> Any:
    """Fields within a field."""
    return dataclasses.field(default_factory=inner, metadata={"group": inner})


def whole(at_least: int, at_most: int | None = None) -> Rule:
    return lambda name, value: whole_number(name, value, at_least=at_least, at_most=at_most)


def between(low: float, high: float) -> Rule:
    def rule(name: str, value: Any):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high or not math.isfinite(value):
            raise ValueError(f"{name} must be a number from {low} to {high}; got {value!r}")

    return rule


def above_zero(low: float, high: float) -> Rule:
    """What float32 can multiply by."""

    def rule(name: str, value: Any):
        positive(name, value)
        between(low, high)(name, value)

    return rule


def one_of(*words: str) -> Rule:
    return lambda name, value: choice(name, value, words)


def true_or_false(name: str, value: Any):
    flag(name, value)


def fields(described: type) -> Iterator[tuple[str, type, Any, Mapping[str, Any]]]:
    """Of each field its name, its type, its default and what else is stated; not of groups."""
    for entry in dataclasses.fields(described):
        if "group" not in entry.metadata:
            kind = entry.type
            if isinstance(kind, types.UnionType):
                kind = kind.__args__[0]
            assert isinstance(kind, type), f"{entry.name} is annotated by a type or `type | None`"
            yield entry.name, kind, entry.default, entry.metadata


def groups(described: type) -> Iterator[tuple[str, type]]:
    for entry in dataclasses.fields(described):
        if "group" in entry.metadata:
            yield entry.name, entry.metadata["group"]


def mistakes(described: type, values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What the rules of the fields say against values, field by field."""
    said = []
    for name, _, default, facts in fields(described):
        value = values[name]
        if facts["rule"] is None or (value is None and default is None):
            continue
        try:
            facts["rule"](f"{prefix}{name}", value)
        except ValueError as error:
            said.append(str(error))
    return said
