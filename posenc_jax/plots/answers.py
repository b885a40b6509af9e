"""Pictures of retrieval: accuracy against context, and by tokens back to the answer."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posenc_jax.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


NARROW = 6.5  # letters per inch of a paper on a line of a name beside its marks


@style.styled()
def by_gap(
    grid: np.ndarray, methods: Sequence[str], parts: Sequence[str], trained: int, title: str = ""
) -> "Figure":
    """Draw a heat map of accuracies by tokens back to the answer."""
    size = (2.2 + 0.9 * len(parts), 1.0 + _rows(methods)[-1])
    figure, (axes,) = style.panels(1, 1, size, tall=True)
    _grid(axes, grid, methods, parts, trained)
    style.finish(figure, title)
    return figure


def _names(methods: Sequence[str]) -> list[str]:
    wide = style.width()
    return [style.folded(name, int(NARROW * wide) if wide else style.LONGEST) for name in methods]


def _rows(methods: Sequence[str]) -> np.ndarray:
    """Edges of the rows in inches from the top; each row is as high as its name."""
    heights = [0.23 + 0.14 * name.count("\n") for name in _names(methods)]
    return np.concatenate([[0.0], np.cumsum(heights)])


def _grid(axes: "Axes", grid: np.ndarray, methods, parts: Sequence[str], trained: int) -> None:
    """Accuracies as colours and numbers, with a rule at L; NaN leaves a cell empty."""
    axes.grid(False)
    rows, columns = _rows(methods), np.arange(len(parts) + 1) - 0.5
    image = axes.pcolormesh(columns, rows, grid, cmap="viridis", vmin=0, vmax=1)
    axes.invert_yaxis()
    middle = (rows[:-1] + rows[1:]) / 2
    axes.set_yticks(middle, _names(methods))
    axes.set_xticks(range(len(parts)), parts)
    axes.tick_params(length=0, labelsize=8)
    axes.set_xlabel("tokens back to the answer")
    if wide := style.width():
        axes.set_xlabel("tokens back")
        if len(" ".join(parts)) > 0.5 * wide * style.LETTERS:
            axes.tick_params(axis="x", labelrotation=90)
    text: dict[str, Any] = {"ha": "center", "va": "center", "size": 8 if style.width() else 7}
    for (row, column), value in np.ndenumerate(grid):
        if np.isfinite(value):
            colour = "black" if value > 0.6 else "white"
            axes.text(column, float(middle[row]), f"{value:.2f}", color=colour, **text)
    ends = [int(part.partition("-")[2]) for part in parts]
    if trained in ends:
        axes.axvline(ends.index(trained) + 0.5, color="white", linewidth=2.5)
        axes.axvline(ends.index(trained) + 0.5, color="black", linewidth=1)
    figure = axes.get_figure()
    if figure is not None and not style.width():
        figure.colorbar(image, ax=axes, label="accuracy", shrink=0.9)


Interval = tuple[float, float | None, float | None]  # a mean, and its ends over three seeds or more


class Found(NamedTuple):
    """What a method finds beyond L, and how it orders it."""

    name: str
    found: Interval | None
    order: Interval | None  # None: it finds too little to be ordered


@style.styled()
def found_and_order(methods: Sequence[Found], longest: int) -> "Figure":
    """Two marks per method, its name on the left; a line where a reader has no order."""
    figure, (axes,) = style.panels(1, 1, (6.4, 0.9 + 0.28 * len(methods)), tall=True)
    axes.axvline(0.5, color="0.6", linestyle=":", linewidth=1)
    looks: dict[str, dict[str, Any]] = {
        "found": dict(color="0.45", marker="o", markerfacecolor="white"),
        "order": dict(color="#0072B2", marker="o"),
    }
    for place, method in enumerate(methods):
        for name, look in looks.items():
            value: Interval | None = getattr(method, name)
            if value is None:
                continue
            centre, low, high = value
            if low is not None and high is not None:
                axes.hlines(place, max(low, 0), min(high, 1), color=look["color"], linewidth=1.2)
            label = f"{name} beyond L" if not place else None
            axes.plot(centre, place, linestyle="", label=label, **look)
    axes.set_yticks(range(len(methods)), _names([method.name for method in methods]))
    axes.set(xlim=(-0.03, 1.03), ylim=(len(methods) - 0.4, -0.6), xlabel="share of questions")
    known = methods and methods[0].order is not None
    claim = f" {methods[0].name} keeps order best" if known else ""
    title = f"At {longest:,} tokens{claim}; dotted: without order"
    style.finish(figure, title)
    return figure


@style.styled()
def knocked_out(orders: Mapping[str, Mapping[str, float | None]]) -> "Figure":
    """A bar per method and hidden thing, from 0.5, where a reader has no order."""
    hidden = list(dict.fromkeys(name for own in orders.values() for name in own))
    size = 0.8 / len(hidden)
    figure, (axes,) = style.panels(1, 1, (6.4, 1.2 + 0.6 * len(orders)), tall=True)
    for number, name in enumerate(hidden):
        values = [orders[method].get(name) for method in orders]
        places = [place + number * size for place in range(len(orders))]
        widths = [0.0 if value is None else value - 0.5 for value in values]
        bars = axes.barh(places, widths, size, left=0.5)
        colour = bars.patches[0].get_facecolor()
        axes.plot([], [], "s", color=colour, label=f"hidden: {name}")
    axes.set_yticks([place + 0.4 - size / 2 for place in range(len(orders))], list(orders))
    axes.set(xlim=(0.4, 1.02), xlabel="order: share answered with the last of two values")
    axes.invert_yaxis()
    style.finish(figure, "Order, and what is left of it where keys are hidden")
    return figure
