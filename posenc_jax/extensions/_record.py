"""What an extension states of itself."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from posenc_jax.encoding import Encoding


@dataclasses.dataclass(frozen=True)
class Kind:
    """What an extension changes. Two of one kind would change the same thing, and refuse."""

    name: str
    changed: Callable[[Encoding], bool]  # whether an encoding is changed in this already


@dataclasses.dataclass(frozen=True)
class Extension:
    """A pure function from an encoding to the same type with other numbers."""

    name: str
    apply: Callable[..., Encoding]  # (encoding, scale, *, options)
    kind: Kind
    scale: Literal["given", "none", "read"]  # read: the length read over L, 1 below it
    of: type[Encoding] = Encoding  # what it is made for; Encoding: anything
    stops_at: tuple[type[Encoding], ...] = ()  # wrappers through which it does not reach
    shown: tuple[str, ...] = ()  # options that results show in a column of their own

    def __call__(self, encoding: Encoding, scale: float, **options) -> Any:
        return self.apply(encoding, scale, **options)

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.apply).parameters.values()
        return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def needs_options(self) -> bool:
        """Whether it says nothing by its name alone."""
        return any(p.default is p.empty for p in self.options.values())

    def fits(self, encoding: Encoding) -> bool:
        return self.carrier(encoding) is not None

    def carrier(self, encoding: Encoding) -> Encoding | None:
        """The encoding, or the one inside it, that this is made for."""
        if isinstance(encoding, self.of):
            return encoding
        inner = getattr(encoding, "inner", None)
        if not isinstance(inner, Encoding) or isinstance(encoding, self.stops_at):
            return None
        return self.carrier(inner)

    def changed(self, encoding: Encoding) -> bool:
        """Whether an encoding that this fits carries one of the same kind already."""
        carrier = self.carrier(encoding)
        return carrier is not None and self.kind.changed(carrier)

    def applied(self, encoding: Encoding, scale: float, **options) -> Encoding:
        """The encoding, with this applied to what inside it carries it."""
        if isinstance(encoding, self.of):
            return self.apply(encoding, scale, **options)
        inner = self.applied(encoding.inner, scale, **options)  # pyright: ignore
        return encoding.replace(inner=inner)

    def at_the_length_read(self, name: str) -> "Extension":
        """The same at the scale of the length that is being read."""
        return dataclasses.replace(self, name=name, scale="read")


def extension(kind: Kind, *, scale: Literal["given", "none", "read"], **statements):
    """The record of a function, under the function's name."""

    def record(apply: Callable[..., Encoding]) -> Extension:
        return Extension(apply.__name__, apply, kind, scale, **statements)

    return record


def float64(array) -> np.ndarray:
    return np.asarray(array, np.float64)


def check_log_length(name: str, encoding: Encoding):
    if encoding.train_length < 2:
        raise ValueError(
            f"{name} divides by ln L and needs a train_length of at least 2; "
            f"got {encoding.train_length}"
        )
