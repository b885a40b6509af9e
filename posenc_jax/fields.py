"""A configuration field: its default, its description and its rule, each stated once.

Nothing here imports jax.
"""

import dataclasses
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from posenc_jax.checks import MOST, choice, flag, positive, whole_number

Rule = Callable[[str, Any], object]  # (name, value); raises ValueError


FLOAT = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)"
NUMBER = r"[+-]?\d+(\.\d*)?([eE]\+?\d+)?"


class Field(NamedTuple):
    """A field as a person sets it."""

    name: str
    kind: Any  # a type, or bool | str
    default: Any
    about: str
    rule: Rule | None

    @property
    def optional(self) -> bool:
        return self.default is None

    def check(self, name: str, value: Any) -> None:
        """Raise a ValueError that gives the name if the value breaks the rule."""
        if value is None and self.optional:
            return
        if self.kind is str and not isinstance(value, str):
            raise ValueError(f"{name} must be text; got {value!r}")
        if self.rule is not None:
            self.rule(name, value)


def default(value: Any, about: str = "", rule: Rule | None = None) -> Any:
    """A dataclass field with its default; the rule is not applied to a default of None."""
    return dataclasses.field(default=value, metadata={"about": about, "rule": rule})


def group(described: type) -> Any:
    """A dataclass field that is itself a group of fields."""
    return dataclasses.field(default_factory=described, metadata={"group": described})


def options() -> Any:
    """A dataclass field for the options of the scheme or extension that the group names."""
    return dataclasses.field(default_factory=dict, metadata={})


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


def fields(described: type) -> Iterator[Field]:
    """Every field with a description, groups excluded."""
    for entry in dataclasses.fields(described):
        if "about" in entry.metadata:
            kind = entry.type
            if isinstance(kind, types.UnionType) and kind != bool | str:
                kind = kind.__args__[0]
            assert not isinstance(kind, str), f"{entry.name} is annotated by a type"
            facts = entry.metadata
            yield Field(entry.name, kind, entry.default, facts["about"], facts["rule"])


def groups(described: type) -> Iterator[tuple[str, type]]:
    for entry in dataclasses.fields(described):
        if "group" in entry.metadata:
            yield entry.name, entry.metadata["group"]


def mistakes(described: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Violations of the rules of fields and of groups of them, by the whole names of the fields."""
    problems = {}
    for field in fields(described):
        name = f"{prefix}{field.name}"
        try:
            field.check(name, values.get(field.name, field.default))
        except ValueError as error:
            problems[name] = str(error)
    for name, inner in groups(described):
        problems |= mistakes(inner, values.get(name, {}), f"{prefix}{name}.")
    return problems


def parsed(name: str, kind: Any, text: str) -> Any:
    """The value that a person wrote for a field of this kind; whole numbers may be 1e3 or 200.0."""
    if kind is int:
        number = float(text) if re.fullmatch(NUMBER, text, re.ASCII) else math.nan
        if not number.is_integer():
            raise ValueError(f"{name} must be a whole number, such as 600 or 1e3; got {text!r}")
        return int(text) if text.lstrip("+-").isdigit() else int(number)
    if kind is float:
        if not re.fullmatch(FLOAT, text, re.ASCII):
            raise ValueError(f"{name} must be a number, such as 0.003 or 3e-3; got {text!r}")
        return float(text)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be True or False; got {text!r}")
        return text.lower() == "true"
    if kind == bool | str:
        return {"true": True, "false": False}.get(text.lower(), text)
    return text
