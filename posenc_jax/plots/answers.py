"""Pictures of retrieval: accuracy against context, and by tokens back to the answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posenc_jax.display import Line
from posenc_jax.plots import curves, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CONTEXT = "context (tokens)"
NARROW = 22  # letters per line of a name beside the map, in a paper's column


@style.styled
def headline(
    answers: Sequence[Line],
    text: Sequence[Line],
    grid: np.ndarray,  # [methods, parts], accuracies
    methods: Sequence[str],
    parts: Sequence[str],  # 1-16, 17-32, ...
    trained: int,
    title: str,
    note: str = "",  # above the names of the lines
) -> "Figure":
    """Draw accuracy by tokens back at the top; below it, against context, bits per byte of text on
    the left, if there are any, and accuracy relative to the ceiling on the right."""
    from matplotlib.figure import Figure

    legend = [style.folded(line.name, style.LONGEST) for line in answers]
    below = max(3.6, 1.0 + 0.18 * sum(1 + name.count("\n") for name in legend))
    above = _rows(methods)[-1] + 0.9
    figure = Figure(figsize=(9.2, above + below), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[above, below], squeeze=False)[:, 0]
    widths = [1, 2] if text else [1]
    panels = bottom.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    if text:
        curves.over_tokens(panels[0], text, [trained])
        panels[0].set(xlabel=CONTEXT, ylabel="bits per byte of text")
    curves.over_tokens(panels[-1], answers, [trained], words_at="bottom")
    panels[-1].set(xlabel=CONTEXT, ylabel=curves.VALUES["relative"], ylim=(0, 1.08))
    handles, names = panels[-1].get_legend_handles_labels()
    folded = [style.folded(name, style.LONGEST) for name in names]
    beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)}
    panels[-1].legend(handles, folded, title=note or None, title_fontsize=8, **beside)
    axes = top.subplots()
    _grid(axes, grid, methods, parts, trained)
    figure.suptitle(title)
    return figure


@style.styled
def by_gap(
    grid: np.ndarray, methods: Sequence[str], parts: Sequence[str], trained: int
) -> "Figure":
    """Draw the heat map alone."""
    size = (2.2 + 0.9 * len(parts), 1.0 + _rows(methods)[-1])
    figure, (axes,) = style.panels(1, 1, size, tall=True)
    _grid(axes, grid, methods, parts, trained)
    return figure


def _names(methods: Sequence[str]) -> list[str]:
    return [style.folded(name, NARROW if style.narrow() else style.LONGEST) for name in methods]


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
    if style.narrow():
        axes.set_xlabel("tokens back")
        axes.set_xticks(range(len(parts)), [style.folded(part, 4) for part in parts])
    text: dict[str, Any] = {"ha": "center", "va": "center", "size": 6 if style.narrow() else 7}
    for (row, column), value in np.ndenumerate(grid):
        if np.isfinite(value):
            colour = "black" if value > 0.6 else "white"
            axes.text(column, float(middle[row]), f"{value:.2f}", color=colour, **text)
    ends = [int(part.partition("-")[2]) for part in parts]
    if trained in ends:
        axes.axvline(ends.index(trained) + 0.5, color="white", linewidth=2.5)
        axes.axvline(ends.index(trained) + 0.5, color="black", linewidth=1)
    figure = axes.get_figure()
    if figure is not None and not style.narrow():
        figure.colorbar(image, ax=axes, label="accuracy", shrink=0.9)


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
    title = f"Reach and order at {longest:,} tokens; dots: at {trained:,}, L"
    style.finish(figure, axes, title)
    return figure
