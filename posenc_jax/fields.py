"""A configuration field: its default, its description and its rule, each stated once.

Nothing here imports jax.
"""

import dataclasses
import math
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from posenc_jax.checks import MOST, choice, flag, positive, whole_number

Rule = Callable[[str, Any], object]  # (name, value); raises ValueError


def default(value: Any, about: str = "", rule: Rule | None = None, **facts: Any) -> Any:
    """A dataclass field with its default; a default of None is not held against the rule."""
    metadata = {"about": about, "rule": rule, **facts}
    return dataclasses.field(default=value, metadata=metadata)


def within(inner: type) -> Any:
    """A group of fields within a field."""
    return dataclasses.field(default_factory=inner, metadata={"group": inner})


def whole(at_least: int, at_most: int = MOST) -> Rule:
    return lambda name, value: whole_number(name, value, at_least=at_least, at_most=at_most)


def between(low: float, high: float) -> Rule:
    def rule(name: str, value: Any):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high or not math.isfinite(value):
            raise ValueError(f"{name} must be a number from {low} to {high}; got {value!r}")

    return rule


def above_zero(low: float, high: float) -> Rule:
    """Rule for a positive factor within the range given, which float32 can hold."""

    def rule(name: str, value: Any):
        positive(name, value, at_most=high)
        between(low, high)(name, value)

    return rule


def one_of(*words: str) -> Rule:
    return lambda name, value: choice(name, value, words)


def true_or_false(name: str, value: Any):
    flag(name, value)


def fields(described: type) -> Iterator[tuple[str, type, Any, Mapping[str, Any]]]:
    """Yield name, type, default and other facts of every field that is not a group."""
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
    """Violations of the fields' rules, in the order of the fields."""
    problems = []
    for name, _, default, facts in fields(described):
        value = values[name]
        if facts["rule"] is None or (value is None and default is None):
            continue
        try:
            facts["rule"](f"{prefix}{name}", value)
        except ValueError as error:
            problems.append(str(error))
    return problems
