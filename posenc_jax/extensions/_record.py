"""The description of an extension."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from posenc_jax.encoding import DistanceBias, Encoding


@dataclasses.dataclass(frozen=True)
class Kind:
    """The quantity that an extension changes; two of one kind cannot be composed."""

    name: str
    changed: Callable[[Encoding], bool]  # True if an encoding has been changed already


@dataclasses.dataclass(frozen=True)
class Extension:
    """A pure function from an encoding to one with other numbers."""

    name: str
    apply: Callable[..., Encoding]  # (encoding, scale, *, options)
    kind: Kind
    scale: Literal["given", "none", "read"]  # read: the length read over L, at least 1
    of: type[Encoding] | tuple[type[Encoding], ...] = Encoding  # encodings it applies to
    stops_at: tuple[type[Encoding], ...] = ()  # wrappers whose inner encoding it does not apply to
    acts_by: str | None = None  # a hook that an encoding around must forward, or choose by layer
    beyond_windows: bool = False  # does not apply within a window or a chunk
    suits: Callable[[Encoding], bool] = lambda encoding: True  # what else it needs
    trains: bool = True  # False: for evaluations alone
    shown: tuple[str, ...] = ()  # options that have a column in results
    also: tuple[Kind, ...] = ()  # further kinds it changes
    in_all_layers: bool = False  # by default in layers with a window too

    def __call__(self, encoding: Encoding, scale: float, **options) -> Any:
        return self.apply(encoding, scale, **options)

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.apply).parameters.values()
        return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def needs_options(self) -> bool:
        """True if an option has no default."""
        return any(p.default is p.empty for p in self.options.values())

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self.kind, *self.also

    @property
    def made_for(self) -> str:
        """Name the encodings it applies to."""
        if self.of is Encoding:
            return "attention by a softmax"
        types = self.of if isinstance(self.of, tuple) else (self.of,)
        names = [t.__name__ if t is DistanceBias else t.__module__ for t in types]
        words = " or ".join(name.rpartition(".")[2] for name in names)
        return f"{words} without a window of its own" if self.beyond_windows else words

    def fits(self, encoding: Encoding) -> bool:
        return bool(self.carriers(encoding))

    def carriers(self, encoding: Encoding) -> list[Encoding]:
        """Return the encoding, or the encodings inside it, to which this applies."""
        if isinstance(encoding, self.of):
            narrow = encoding.window is not None or encoding.chunk is not None
            unfit = self.beyond_windows and narrow or not self.suits(encoding)
            return [] if unfit else [encoding]
        if isinstance(encoding, self.stops_at) or self.is_lost_in(type(encoding)):
            return []
        return [
            carrier for part in encoding.named_parts().values() for carrier in self.carriers(part)
        ]

    def is_lost_in(self, outer: type[Encoding]) -> bool:
        """True if an encoding does not forward the hook, nor choose a part for each layer."""
        hooks = (self.acts_by, "layer") if self.acts_by else ()
        return bool(hooks) and all(getattr(outer, h) is getattr(Encoding, h) for h in hooks)

    def changed(self, encoding: Encoding) -> Kind | None:
        """Return the kind in which an encoding has been changed already, if any."""
        for kind in self.also:
            if kind.changed(encoding):
                return kind
        changed = any(map(self.kind.changed, (encoding, *self.carriers(encoding))))
        return self.kind if changed else None

    def default_layers(self, encoding: Encoding) -> str | None:
        """Return the kind of layers that see everything, if this fits them; None: all."""
        layers = {encoding.kind_of_layer(i): encoding.layer(i) for i in range(encoding.period)}
        wide = [k for k, layer in layers.items() if layer.narrowed() is None and self.fits(layer)]
        return wide[0] if len(wide) == 1 and not self.in_all_layers else None

    def applied(self, encoding: Encoding, scale: float, layers: Any, options: dict) -> Encoding:
        """Apply this to every carrier inside an encoding, in the layers of one kind or in all."""
        if layers is None and isinstance(encoding, self.of):
            return self.apply(encoding, scale, **options)
        parts = {}
        for place, part in encoding.named_parts().items():
            rest = None if place.rpartition("/")[2] == layers else layers
            if self.fits(part) and (rest is None or part.named_parts()):
                # The parts of a stacked encoding have the leading layer axis too.
                stacked = part.replace(layers=encoding.layers or part.layers)
                extended = self.applied(stacked, scale, rest, options)
                parts[place] = extended.replace(layers=part.layers)
        if not parts:
            raise ValueError(
                f"extension {self.name!r} changes nothing in encoding {encoding.name!r} with "
                f"layers={layers!r}"
            )
        return encoding.with_parts(parts)

    def at_the_length_read(self, name: str) -> "Extension":
        """Return the same extension with the scale of the length read."""
        return dataclasses.replace(self, name=name, scale="read")

    def in_steps(self, name: str) -> "Extension":
        """Return the same at the smallest power of two that reaches the length read."""

        @functools.wraps(self.apply)
        def apply(encoding: Encoding, scale: float, **options) -> Encoding:
            return self.apply(encoding, 2.0 ** math.ceil(math.log2(scale)), **options)

        return dataclasses.replace(self, name=name, apply=apply, scale="read")


def extension(kind: Kind, *, scale: Literal["given", "none", "read"], **fields):
    """Decorate a function to make it an extension with the function's name."""

    def record(apply: Callable[..., Encoding]) -> Extension:
        return Extension(apply.__name__, apply, kind, scale, **fields)

    return record


def float64(array) -> np.ndarray:
    return np.asarray(array, np.float64)


def check_log_length(name: str, encoding: Encoding):
    if encoding.train_length < 2:
        raise ValueError(
            f"{name} divides by ln L and needs a train_length of at least 2; "
            f"got {encoding.train_length}"
        )
