"""Pictures of losses against length, place in the window and training step."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posenc_jax.display import NONE, Line, Panels, ends, rounded
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import label
from posenc_jax.evaluation.table import counts
from posenc_jax.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VALUES = {"bpb": "bits per byte", "nll": "nats per token", "ppl": "perplexity per token"}
VALUES |= {"accuracy": "accuracy", "relative": "accuracy, as a share of the best possible"}
LENGTH, PLACE = "length (tokens)", "position in the window (tokens)"
TITLE = 10.3  # letters per inch of a title
WHOLE = 100.0  # values from here on are written without decimals
BANDS = 3  # most readable bands; the intervals of more lines are bars
BESIDE = 0.12  # inches from the first of these bars to the last
TWO = 5.0  # inches in which two panels stand side by side
NAMES = 0.42  # most of a panel for the names of its lines; longer ones are in a legend


@style.styled()
def chart(
    lines: Sequence[Line],
    *,
    x: str = LENGTH,
    y: str,
    lengths: Sequence[int] = (),
    trained: Iterable[int] = (),
    title: str = "",
    note: str = "",
    size: tuple[float, float] | None = None,
) -> "Figure":
    """Lines and their bands; `lengths` makes the horizontal axis one of tokens."""
    figure, (axes,) = style.panels(1, 1, size)
    if lengths:
        over_tokens(axes, lines, trained, lengths)
    else:
        draw_lines(axes, lines)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.locator_params(axis="x", nbins=4 if style.width() else 8)
    axes.set(xlabel=x, ylabel=y)
    if note and not style.width():
        axes.set_title(note, fontsize=8, color="0.35")
    style.finish(figure, title)
    return figure


def over_tokens(
    axes: "Axes",
    lines: Sequence[Line],
    trained: Iterable[int],
    lengths: Sequence[int] = (),
    **options: Any,
) -> None:
    """Draw lines over a logarithmic axis with these lengths, by default all at which a line has a
    value; options are of `length_axis`."""
    draw_lines(axes, lines)
    lengths = lengths or sorted({int(x) for line in lines for x in line.x})
    style.length_axis(axes, lengths, sorted(set(trained)), **options)


def draw_lines(axes: "Axes", lines: Sequence[Line], bands: int = BANDS) -> None:
    from matplotlib.transforms import ScaledTranslation

    banded = [line.name for line in lines if line.band is not None]
    few, gap = len(banded) <= bands, BESIDE / max(1, len(banded) - 1)
    for line in lines:
        label = line.name if line.listed else "_"
        (drawn,) = axes.plot(line.x, line.y, **line.look, label=label)
        colour = drawn.get_color()
        if line.band is not None:
            if few:
                filled: dict[str, Any] = dict(color=colour, alpha=0.12, linewidth=0)
                axes.fill_between(line.x, *line.band, **filled)
            else:
                # Beside one another, else bars of a length merge into a line.
                beside = gap * banded.index(line.name) - BESIDE / 2
                inches = ScaledTranslation(beside, 0, axes.figure.dpi_scale_trans)
                moved = axes.transData + inches
                axes.vlines(line.x, *line.band, color=colour, linewidth=1, transform=moved)


class View(NamedTuple):
    """A panel of lines against length, whose title is a claim."""

    title: str
    y: str
    lines: Sequence[Line]
    trained: Sequence[int]
    limits: tuple[float, float] | None = None  # of the vertical axis
    ticks: Sequence[str] = ()  # at 0, 1, ... instead of lengths in tokens
    x: str = LENGTH
    dots: Sequence[Line] = ()  # of seeds, without lines and names


@style.styled()
def named(*views: View, each: float = 6.2) -> "Figure":
    """Panels `each` so wide of lines with their last values and names at their ends, and L marked;
    names that do not fit there are in a legend below."""
    wide = style.width()
    across = len(views) if wide is None or wide >= TWO else 1
    down = len(views) // across
    each = each if wide is None else wide / across
    lines = [line for view in views for line in view.lines]
    at_end = max(len(line.name) for line in lines) + 6 <= NAMES * each * style.LETTERS
    most = max(len(view.lines) for view in views) if at_end else 0
    inches = max(min(3.0, style.ASPECT * each), style.LINE * most)  # of an axis
    size = (each * across, (inches + (0.9 if wide is None else 0.6)) * down)
    figure, panels = style.panels(down, across, size, tall=True)
    for axes, view in zip(panels, views, strict=True):
        panel(axes, view, inches, at_end)
    if not at_end:
        style.finish(figure)
    return figure


@style.styled()
def panel(axes: "Axes", view: View, inches: float = 3.0, at_end: bool = True) -> None:
    """Draw a view in axes of this height, its intervals as bars."""
    draw_lines(axes, view.lines, 0)
    for dots in view.dots:
        axes.plot(dots.x, dots.y, **dots.look)
    lengths = sorted({int(x) for line in view.lines for x in line.x})
    if view.ticks:
        axes.set_xticks(range(len(view.ticks)), view.ticks)
    else:
        style.length_axis(axes, lengths, share=style.AXIS * (1 if at_end else 2))
    for length in view.trained:
        axes.axvline(length, color="0.6", linewidth=1, linestyle=":")
        side = "left" if length == lengths[0] else "center"
        style.annotate(axes, f"L = {length:,}", (length, 1), (0, 2), ha=side, va="bottom")
    axes.set(xlabel=view.x, ylabel=view.y, ylim=view.limits)
    axes.margins(x=0.04)
    if not style.width():
        pad = 16 if view.trained else None
        axes.set_title(
            style.folded(view.title, int(TITLE * style.inches_of(axes))),
            loc="left",
            pad=pad,
            weight="bold",
        )
    if at_end:
        _name_ends(axes, view.lines, style.LINE * 0.8 / inches)


def _name_ends(axes: "Axes", lines: Sequence[Line], gap: float) -> None:
    """Write a value and a name at the end of each line, at least `gap` of the axis apart; those of
    lines that leave the panel stand at its top."""
    low, high = axes.get_ylim()
    ends = [(line.x[-1], np.clip(line.y[-1], low, high)) for line in lines]
    places = axes.transAxes.inverted().transform(axes.transData.transform(ends))[:, 1]
    for line, end, place in zip(lines, ends, style.spaced(places.tolist(), gap), strict=True):
        colour = line.look["color"]
        above = " ↑" if line.y[-1] > high else ""
        name = line.name if len(line.name) <= style.LONGEST else f"{line.name[: style.LONGEST]}…"
        axes.annotate(
            style.folded(f"{last_value(line)} {name}{above}", 2 * style.LONGEST),
            end,
            (1.04, place),
            textcoords="axes fraction",
            color=colour,
            fontsize=8,
            va="center",
            arrowprops=dict(arrowstyle="-", color=colour, alpha=0.6, linewidth=0.5, **TO_NAME),
        )


TO_NAME: dict[str, Any] = dict(relpos=(0, 0.5), shrinkA=1, shrinkB=0)  # of a thin line


def last_value(line: Line) -> str:
    if abs(line.y[-1]) >= WHOLE:
        return f"{line.y[-1]:,.0f}"
    band = line.band and (line.band[0][-1], line.band[1][-1])
    words = rounded(line.y[-1], band)
    return words if float(words) else words.removeprefix("-")


@style.styled()
def pointed(figure: "Figure", views: Sequence[View]) -> "Figure":
    """Add a value at each point of the lines, which a page shows under the pointer."""
    for axes, view in zip(figure.axes, views, strict=True):
        for line in view.lines:
            bands = list(zip(*line.band, strict=True)) if line.band else [None] * len(line.x)
            urls = [
                f"{style.VALUE}{line.name}, {x:,} tokens: {rounded(y, band)}"
                + ("" if ends(band) == NONE else f" ({ends(band)})")
                for x, y, band in zip(line.x, line.y, bands, strict=True)
            ]
            axes.scatter(line.x, line.y, s=120, alpha=0, urls=urls)
    return figure


def apart(lines: Sequence[Line]) -> list[Line]:
    looks = style.distinct([line.look for line in lines])
    return [line._replace(look=look) for line, look in zip(lines, looks, strict=True)]


@style.styled()
def side_by_side(panels: Panels) -> "Figure":
    """Panels with a rule at zero."""
    figure, every = style.panels(1, len(panels.lines), sharey=True)
    for axes, (name, lines) in zip(every, panels.lines.items(), strict=True):
        lines = _in_looks_of_methods(lines)
        axes.axhline(0, color="0.6", linewidth=0.8)
        over_tokens(axes, lines, panels.trained)
        axes.set(title=name, xlabel=panels.x)
    every[0].set_ylabel(panels.y)
    style.finish(figure, panels.title)
    return figure


def _in_looks_of_methods(lines: Sequence[Line]) -> list[Line]:
    methods = {line.name: line.method for line in lines if line.method is not None}
    if not methods:
        return list(lines)
    encoding = next(iter(methods.values()))["encoding"]
    looks = style.looks_of_methods(encoding, [label(method) for method in methods.values()])
    look_of = dict(zip(methods, looks, strict=True))
    return [
        line if line.method is None else line._replace(look=look_of[line.name] | line.look)
        for line in lines
    ]


def by_step(rows: Sequence[dict]) -> "Figure | None":
    """Loss at every length against training step, without an extension; None for one checkpoint."""
    plain = protocols.HEADLINE, "none", None
    rows = [row for row in rows if (row["protocol"], row["extension"], row["window"]) == plain]
    rows = [row for row in rows if row["nll"] is not None]
    if not rows:
        return None
    scored = max(rows, key=lambda row: row["step"])["token_hash"]
    rows = [row for row in rows if row["token_hash"] == scored]  # targets of the last checkpoint
    if len({row["step"] for row in rows}) < 2:
        return None
    value = "nll" if any(row["bpb"] is None for row in rows) else "bpb"
    lengths = sorted({row["length"] for row in rows})
    lines = []
    for rank, length in enumerate(lengths):
        chosen = sorted((r for r in rows if r["length"] == length), key=lambda r: r["step"])
        x, y = [row["step"] for row in chosen], [row[value] for row in chosen]
        within = length <= rows[0]["train_length"]
        shade = rank / max(1, len(lengths) - 1)
        look = dict(
            color=(0.1 + 0.8 * shade, 0.35, 0.7 * (1 - shade)),
            marker="osP^vDX*"[rank % 8],
            linestyle="-" if within else "--",
        )
        name = f"length {length}" + ("" if within else " (beyond L)")
        unit = np.array([row[value] / row["nll"] for row in chosen])  # nan: a single unit
        low, high = (
            np.array([r[f"nll_{end}"] for r in chosen], float) * unit for end in ("low", "high")
        )
        lines.append(Line(name, x, y, look, (low.tolist(), high.tolist())))
    longest = max(rows, key=lambda row: row["length"])
    title = f"{protocols.HEADLINE}: {protocols.find(protocols.HEADLINE).title}"
    note = f"{longest['evaluation']}: {counts(longest)}"
    return chart(lines, x="training step", y=VALUES[value], title=title, note=note)
