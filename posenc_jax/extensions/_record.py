"""The record that describes an extension."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from posenc_jax.encoding import DistanceBias, Encoding


@dataclasses.dataclass(frozen=True)
class Kind:
    """What an extension changes; two of one kind change the same thing and are refused."""

    name: str
    changed: Callable[[Encoding], bool]  # whether an encoding was changed in this already


@dataclasses.dataclass(frozen=True)
class Extension:
    """A pure function from an encoding to the same type with other numbers."""

    name: str
    apply: Callable[..., Encoding]  # (encoding, scale, *, options)
    kind: Kind
    scale: Literal["given", "none", "read"]  # read: the length read over L, 1 below it
    of: type[Encoding] | tuple[type[Encoding], ...] = Encoding  # made for; Encoding: anything
    stops_at: tuple[type[Encoding], ...] = ()  # wrappers through which it does not reach
    beyond_windows: bool = False  # it changes nothing where tokens see a window or a chunk alone
    shown: tuple[str, ...] = ()  # options that results show in a column of their own
    also: tuple[Kind, ...] = ()  # what it changes beside its kind

    def __call__(self, encoding: Encoding, scale: float, **options) -> Any:
        return self.apply(encoding, scale, **options)

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.apply).parameters.values()
        return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def needs_options(self) -> bool:
        """Whether its name alone is not enough, since an option has no default."""
        return any(p.default is p.empty for p in self.options.values())

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self.kind, *self.also

    @property
    def made_for(self) -> str:
        """What it is made for, in words."""
        of = self.of if isinstance(self.of, tuple) else (self.of,)
        names = [one.__name__ if one is DistanceBias else one.__module__ for one in of]
        words = " or ".join(name.rpartition(".")[2] for name in names)
        return f"{words} without a window of its own" if self.beyond_windows else words

    def fits(self, encoding: Encoding) -> bool:
        return bool(self.carriers(encoding))

    def carriers(self, encoding: Encoding) -> list[Encoding]:
        """The encoding, or the encodings inside it, that this is made for."""
        if isinstance(encoding, self.of):
            narrow = encoding.window is not None or encoding.chunk is not None
            return [] if self.beyond_windows and narrow else [encoding]
        if isinstance(encoding, self.stops_at):
            return []
        return [
            carrier for part in encoding.named_parts().values() for carrier in self.carriers(part)
        ]

    def changed(self, encoding: Encoding) -> Kind | None:
        """What this changes that an encoding carries an extension of already, if anything."""
        for kind in self.also:
            if kind.changed(encoding):
                return kind
        changed = any(map(self.kind.changed, (encoding, *self.carriers(encoding))))
        return self.kind if changed else None

    def applied(self, encoding: Encoding, scale: float, layers: Any, options: dict) -> Encoding:
        """Apply this to every carrier inside an encoding, in the named layers."""
        if layers is None and isinstance(encoding, self.of):
            return self.apply(encoding, scale, **options)
        # Arrays of a stacked encoding have a leading axis in its parts too.
        parts = {
            name: self.applied(
                part.replace(layers=encoding.layers or part.layers),
                scale,
                None if name == layers else layers,
                options,
            ).replace(layers=part.layers)
            for name, part in encoding.named_parts().items()
            if self.fits(part) and self._reaches(name, part, layers)
        }
        if not parts:
            raise ValueError(
                f"extension {self.name!r} changes nothing in encoding {encoding.name!r} with "
                f"layers={layers!r}"
            )
        return encoding.with_parts(parts)

    def _reaches(self, name: str, part: Encoding, layers: Any) -> bool:
        """Whether a part is in the requested layers or holds such layers."""
        return layers is None or name == layers or bool(part.named_parts())

    def at_the_length_read(self, name: str) -> "Extension":
        """The same extension at the scale of the length being read."""
        return dataclasses.replace(self, name=name, scale="read")


def extension(kind: Kind, *, scale: Literal["given", "none", "read"], **statements):
    """Decorate a function to make it the record of an extension with the function's name."""

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
