"""Lines and panels of a picture, which `posenc_jax.plots` draws."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Line(NamedTuple):
    """One method in a picture and in the table beside it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    look: dict[str, Any]  # options of matplotlib
    band: tuple[Sequence[float], Sequence[float]] | None = None  # low and high
    seeds: Sequence[Sequence[float]] = ()  # values of all seeds at each x
    gid: str | None = None
    listed: bool = True  # in the legend
    method: Mapping[str, Any] | None = None  # columns of a row whose look it has below `look`


class Panels(NamedTuple):
    """Lines over tokens, side by side with a common vertical axis."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[Line]]  # by the title of their panel
    trained: Sequence[int] = ()  # lengths marked on the horizontal axis
