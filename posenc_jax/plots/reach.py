"""Reach against order: one arrow per method, from the trained length to the longest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc_jax.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Place(NamedTuple):
    """Reach and order of a method at a length, with 95% intervals over three or more seeds."""

    reach: float
    order: float
    reach_ends: tuple[float, float] | None = None
    order_ends: tuple[float, float] | None = None


class Arrow(NamedTuple):
    name: str
    look: dict[str, Any]
    begin: Place  # at the trained length
    end: Place  # at the longest


@style.styled
def reach_and_order(arrows: Sequence[Arrow], trained: int, longest: int) -> "Figure":
    figure, (axes,) = style.panels(1, 1, (8.6, 5.6))
    axes.axhline(0, color="0.6", linewidth=0.8)
    places = [place for arrow in arrows for place in (arrow.begin, arrow.end)]
    left = min([0.6, *(place.reach for place in places)])
    low = min([0.0, *(place.order for place in places)])
    for arrow in arrows:
        colour, begin, end = arrow.look["color"], arrow.begin, arrow.end
        axes.annotate(
            "",
            (end.reach, end.order),
            (begin.reach, begin.order),
            arrowprops=dict(arrowstyle="-|>", color=colour, alpha=0.25, linewidth=1),
        )
        axes.plot(begin.reach, begin.order, ".", color=colour, markersize=4)
        marked = {name: value for name, value in arrow.look.items() if name != "linestyle"}
        axes.plot(end.reach, end.order, linestyle="", label=arrow.name, **marked)
        if end.reach_ends is not None:
            axes.hlines(end.order, *end.reach_ends, color=colour, linewidth=0.8, alpha=0.6)
        if end.order_ends is not None:
            axes.vlines(end.reach, *end.order_ends, color=colour, linewidth=0.8, alpha=0.6)
    axes.set(
        xlabel="reach: accuracy without an older setting, relative to the ceiling",
        ylabel="order: 0 picks either of two settings, 1 always the last",
        xlim=(left - 0.05, 1.05),
        ylim=(low - 0.05, 1.05),
    )
    style.heading(figure, f"Reach and order at {longest:,} tokens; dots: at {trained:,}, L")
    style.legend(figure, axes)
    return figure
