"""Pictures of losses against length, place in the window, scale and training step."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posenc_jax.data.texts import HELD_OUT
from posenc_jax.display import Line, Panels, ends, rounded
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.cells import FRESH as FRESH_ROW
from posenc_jax.evaluation.cells import Cell, curve_of, is_baseline, label
from posenc_jax.evaluation.statistics import smooth
from posenc_jax.evaluation.table import counts, over
from posenc_jax.plots import style
from posenc_jax.runtime.terminal import warn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VALUES = {"bpb": "bits per byte", "nll": "nats per token", "ppl": "perplexity per token"}
VALUES |= {"accuracy": "accuracy", "relative": "accuracy, as a share of the best possible"}
LENGTH, PLACE = "length (tokens)", "position in the window (tokens)"
TITLE = 64  # letters on a line of a title
BANDS = 3  # most readable bands; the intervals of more lines are bars


@style.styled()
def chart(
    lines: Sequence[Line],
    *,
    x: str = LENGTH,
    y: str,
    lengths: Sequence[int] = (),
    trained: Iterable[int] = (),
    log: bool = False,
    title: str = "",
    note: str = "",
    size: tuple[float, float] | None = None,
    below: bool = False,
) -> "Figure":
    """Lines with their seeds, as dots or thin lines, and their bands.

    `lengths` makes the horizontal axis one of tokens.
    """
    figure, (axes,) = style.panels(1, 1, size)
    if lengths:
        over_tokens(axes, lines, trained, lengths)
    else:
        draw_lines(axes, lines)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel=x, ylabel=y)
    if log:
        style.log_values(axes)
    if note and not style.narrow():
        axes.set_title(note, fontsize=8, color="0.35")
    style.finish(figure, axes, title, below=below)
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


def draw_lines(axes: "Axes", lines: Sequence[Line]) -> None:
    few = sum(line.band is not None for line in lines) <= BANDS
    for line in lines:
        label = line.name if line.listed else "_"
        (drawn,) = axes.plot(line.x, line.y, **line.look, label=label)
        colour = drawn.get_color()
        if line.band is not None:
            if few:
                filled: dict[str, Any] = dict(color=colour, alpha=0.12, linewidth=0)
                axes.fill_between(line.x, *line.band, **filled)
            else:
                axes.vlines(line.x, *line.band, color=colour, alpha=0.6, linewidth=1)


class View(NamedTuple):
    """A panel of lines against length, whose title is a claim."""

    title: str
    y: str
    lines: Sequence[Line]
    trained: Sequence[int]
    limits: tuple[float, float]  # of the vertical axis


@style.styled()
def named(*views: View) -> "Figure":
    """Panels of lines with their last values and names at their ends, and L marked."""
    inches = max(3.0, 0.17 * max(len(view.lines) for view in views))  # of an axis
    across = 1 if style.narrow() else len(views)
    down = len(views) // across
    size = (6.2 * across, (inches + 0.9) * down)
    figure, panels = style.panels(down, across, size, tall=True)
    for axes, view in zip(panels, views, strict=True):
        draw_lines(axes, view.lines)
        lengths = sorted({int(x) for line in view.lines for x in line.x})
        style.length_axis(axes, lengths)
        for length in view.trained:
            axes.axvline(length, color="0.6", linewidth=1, linestyle=":")
            side = "left" if length == lengths[0] else "center"
            style.annotate(axes, f"L = {length:,}", (length, 1), (0, 2), ha=side, va="bottom")
        axes.set(xlabel=LENGTH, ylabel=view.y, ylim=view.limits)
        axes.margins(x=0)
        if not style.narrow():
            axes.set_title(style.folded(view.title, TITLE), loc="left", pad=16, weight="bold")
        _name_ends(axes, view.lines, style.LINE * 0.8 / inches)
    return figure


def _name_ends(axes: "Axes", lines: Sequence[Line], gap: float) -> None:
    """Write a value and a name at the end of each line, at least `gap` of the axis apart; those of
    lines that leave the panel stand at its top."""
    low, high = axes.get_ylim()
    heights = np.clip([(line.y[-1] - low) / (high - low) for line in lines], 0, 1).tolist()
    for line, end, place in zip(lines, heights, style.spaced(heights, gap), strict=True):
        colour = line.look["color"]
        above = " ↑" if line.y[-1] > high else ""
        name = line.name if len(line.name) <= style.LONGEST else f"{line.name[: style.LONGEST]}…"
        axes.annotate(
            style.folded(f"{last_value(line)} {name}{above}", 2 * style.LONGEST),
            (line.x[-1], low + end * (high - low)),
            (1.04, place),
            textcoords="axes fraction",
            color=colour,
            fontsize=8,
            va="center",
            arrowprops=dict(arrowstyle="-", color=colour, alpha=0.6, linewidth=0.5, **TO_NAME),
        )


TO_NAME: dict[str, Any] = dict(relpos=(0, 0.5), shrinkA=1, shrinkB=0)  # of a thin line


def last_value(line: Line) -> str:
    band = line.band and (line.band[0][-1], line.band[1][-1])
    return rounded(line.y[-1], band)


@style.styled()
def pointed(figure: "Figure", views: Sequence[View]) -> "Figure":
    """Add a value at each point of the lines, which a page shows under the pointer."""
    for axes, view in zip(figure.axes, views, strict=True):
        for line in view.lines:
            bands = list(zip(*line.band, strict=True)) if line.band else [None] * len(line.x)
            urls = [
                f"{style.VALUE}{line.name}, {x:,} tokens: {rounded(y, band)}"
                + ("" if band is None else f" ({ends(band)})")
                for x, y, band in zip(line.x, line.y, bands, strict=True)
            ]
            axes.scatter(line.x, line.y, s=120, alpha=0, urls=urls)
    return figure


CEILING = Line("ceiling: all that a window holds", [], [], style.CEILING)
ORDERLESS = Line("no order: one of the settings seen", [], [], style.ORDERLESS)
NULL = Line("null: nothing beyond L", [], [], style.NULL)
FRESH = Line("fresh: a row of the last L tokens", [], [], style.FRESH)  # null of the headline
STREAMING = "streaming: the first tokens and a window"


def null_of(protocol: str) -> Line:
    return FRESH if protocol == protocols.HEADLINE else NULL


def draw(cells: Sequence[Cell], folder: Path, evaluation: str = HELD_OUT) -> list[Path]:
    """Draw every picture of an evaluation of one run or several and return the files.

    File names end in the name of the evaluation, except for the run's own held-out text.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        warn("no pictures: matplotlib is not installed here")
        return []
    suffix = "" if evaluation == HELD_OUT else f"-{evaluation}"
    rows = records.rows(cells)
    last = max(row["step"] for row in rows)
    several_runs = len({row["run"] for row in rows}) > 1
    newest = [row for row in rows if several_runs or row["step"] == last]
    last_cells = [c for c in cells if several_runs or c.facts["step"] == last]
    figures = {name: against_length(newest, name) for name in protocols.against_length()}
    for protocol in protocols.shown():
        own = by_place(last_cells, protocol.name) if protocol.by_place else None
        figure, panels = figures.get(protocol.name) or own, protocol.picture(last_cells)
        figures[protocol.name] = figure or (panels and side_by_side(panels))
    figures["budget"] = None if several_runs else by_step(rows)
    written = {}
    for name, figure in figures.items():
        path = folder / f"{name}{suffix}.png"
        style.formed(path).unlink(missing_ok=True)  # from an earlier evaluation of that name
        if figure is not None:
            written[style.save(figure, path)] = _caption(name, rows, figure)
    style.write_captions(folder / f"captions{suffix}.md", written)
    return list(written)


def _caption(name: str, rows: Sequence[dict], figure: "Figure") -> str:
    """Describe the values, runs, targets and intervals of a picture."""
    protocol = name if name in {p.name for p in protocols.every()} else protocols.HEADLINE
    axes = figure.axes[0]
    longest = max((r for r in rows if r["protocol"] == protocol), key=lambda row: row["length"])
    runs = ", ".join(dict.fromkeys(row["run"] for row in rows))
    answers = protocols.find(protocol).value == "accuracy"
    units = "answers" if answers else over(longest)
    return (
        f"{protocol}: {protocols.find(protocol).title}"
        + (", a line per length" if name == "budget" else "")
        + f". {axes.get_ylabel()} against {axes.get_xlabel()}, of {runs}; {longest['evaluation']}: "
        f"{counts(longest)}. {style.unpaired(units)}"
    )


def against_length(rows: Sequence[dict], protocol: str) -> "Figure | None":
    """Perplexity, bits per byte or accuracy, as the protocol has it, with 95% intervals.

    Nats per token replace bits per byte where the tokenizer loses text.
    """
    rows = [row for row in rows if row["protocol"] == protocol and row["nll"] is not None]
    rows = [row for row in rows if label(row) != FRESH_ROW]  # drawn as the null
    if not rows:
        return None
    preferred = protocols.find(protocol).value
    value = _value_of(rows) if preferred == "bpb" else preferred
    curves = _curves(rows)
    lines = []
    for curve in curves:
        name, look = _style(curve[0], rows)
        x, y = [row["length"] for row in curve], [row[value] for row in curve]
        band = None if is_baseline(curve[0]) else _interval(curve, value)
        lines.append(Line(name, x, y, look, band))
    others = _null_lines(curves, value, null_of(protocol))
    if value == "accuracy":
        others = []
        for entry, column in ((CEILING, "ceiling"), (ORDERLESS, "orderless")):
            known = {row["length"]: row[column] for row in rows if row[column] is not None}
            if known:
                x = sorted(known)
                others.append(entry._replace(x=x, y=[known[length] for length in x]))
    return chart(
        [*apart(lines), *others],
        y=VALUES[value],
        lengths=sorted({row["length"] for row in rows}),
        trained=[row["train_length"] for row in rows],
        log=preferred == "ppl",
        **_titles(protocol, rows, "; bands and bars: 95%"),
    )


def _interval(rows: Sequence[dict], value: str) -> tuple[list[float], list[float]]:
    """95% interval over documents, or over answers for accuracy; NaN for a single unit."""
    if value == "accuracy":
        low, high = ([row[f"accuracy_{end}"] for row in rows] for end in ("low", "high"))
        return np.array(low, float).tolist(), np.array(high, float).tolist()
    low, high = (np.array([row[f"nll_{end}"] for row in rows], float) for end in ("low", "high"))
    if value == "ppl":
        return np.exp(np.minimum(low, 700)).tolist(), np.exp(np.minimum(high, 700)).tolist()
    unit = np.array([row[value] / row["nll"] for row in rows])
    return (low * unit).tolist(), (high * unit).tolist()


def apart(lines: Sequence[Line]) -> list[Line]:
    looks = style.distinct([line.look for line in lines])
    return [line._replace(look=look) for line, look in zip(lines, looks, strict=True)]


def by_place(cells: Sequence[Cell], protocol: str) -> "Figure | None":
    """Loss at every place of the longest window, as means over neighbouring places."""
    chosen = [cell for cell in cells if cell.facts["protocol"] == protocol]
    chosen = [cell for cell in chosen if np.all(np.isfinite(cell.by_place))]
    if not chosen:
        return None
    rows = [cell.facts for cell in chosen]
    several = len({row["run"] for row in rows}) > 1
    lines = []
    for cell in chosen:
        windows = int(cell.windows[0])
        x, y = smooth(cell.by_place / windows, windows)
        name, look = _style(cell.facts, rows)
        lines.append(Line(name, list(x), list(y), style.SPARSE | look))
        if cell.facts["extension"] == "none" and not cell.facts["window"] and not several:
            null = records.beyond_trained(cell, cells)
            if null is not None:
                ends = [cell.facts["train_length"], len(cell.by_place)]
                lines.append(NULL._replace(x=ends, y=[null, null]))
    return chart(
        apart(lines),
        x=PLACE,
        y=VALUES["nll"],
        lengths=sorted({row["length"] for row in rows}),
        trained=[row["train_length"] for row in rows],
        **_titles(protocol, [records.row(cell) for cell in chosen]),
    )


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
    style.finish(figure, every[0], panels.title)
    return figure


def _in_looks_of_methods(lines: Sequence[Line]) -> list[Line]:
    methods = [line.method for line in lines if line.method is not None]
    by_name = {line.name: line.method for line in lines if line.method is not None}
    looks = style.distinct([_style(method, methods)[1] for method in by_name.values()])
    look_of = dict(zip(by_name, looks, strict=True))
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
    value = _value_of(rows)
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
        lines.append(Line(name, x, y, look, _interval(chosen, value)))
    return chart(lines, x="training step", y=VALUES[value], **_titles(protocols.HEADLINE, rows))


def _value_of(rows: Sequence[dict]) -> str:
    return "nll" if any(row["bpb"] is None for row in rows) else "bpb"


def _titles(protocol: str, rows: Sequence[dict], more: str = "") -> dict[str, Any]:
    longest = max(rows, key=lambda row: row["length"])
    title = f"{protocol}: {protocols.find(protocol).title}"
    return {"title": title, "note": f"{longest['evaluation']}: {counts(longest)}{more}"}


def _curves(rows: Sequence[dict]) -> list[list[dict]]:
    """Rows of every line by length, with lines in the order of the rows."""
    by_line: dict[tuple, list[dict]] = {}
    for row in rows:
        by_line.setdefault(curve_of(row), []).append(row)
    return [sorted(line, key=lambda row: row["length"]) for line in by_line.values()]


def _style(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Name and look of a row's line, by encoding if there are several, else by method.

    Runs of one encoding differ by dash, scales of one extension by opacity.
    """
    name = label(row)
    one_encoding = len({r["encoding"] for r in rows}) == 1
    extended = row["extension"] != "none"
    look = style.look_of_method(row["extension"])
    if not (one_encoding and extended):
        look["color"], look["marker"] = style.look_of(row["encoding"])
        if look["linestyle"] == "-" and extended:
            look["linestyle"] = "--"
    if name == "window":
        name = f"window: the last {row['window']} tokens"
        look |= dict(color="0.45", marker="", linestyle="-.", linewidth=1.2)
    elif is_baseline(row):
        name, look = STREAMING, look | style.STREAMING | dict(color="0.45", marker="")
    runs = list(dict.fromkeys(r["run"] for r in rows))
    encoding_of = {r["run"]: r["encoding"] for r in rows}
    same = [run for run in runs if encoding_of[run] == row["encoding"]]
    if len(runs) > 1:
        subject = row["run"] if len(same) > 1 else row["encoding"]
        name = subject if name == "none" else f"{subject} + {name}"
        number = same.index(row["run"])
        if number:
            dash = style.DASHES[number % len(style.DASHES)]
            look |= dict(linestyle=dash, markerfacecolor="white")
    scales = sorted({r["scale"] for r in rows if r["extension"] == row["extension"]} - {None})
    if len(scales) > 1:
        look["alpha"] = 0.35 + 0.65 * scales.index(row["scale"]) / (len(scales) - 1)
    return name, look


def _null_lines(curves: Sequence[Sequence[dict]], value: str, entry: Line) -> list[Line]:
    """Null of every run without an extension, from the trained length on."""
    lines = []
    for curve in curves:
        if curve[0]["extension"] != "none" or curve[0]["window"]:
            continue
        beyond = [r for r in curve if r["null_nll"] and r["length"] >= r["train_length"]]
        if beyond:
            y = [_null(row, value) for row in beyond]
            look = entry.look | {"color": style.look_of(curve[0]["encoding"])[0]}
            x = [row["length"] for row in beyond]
            lines.append(Line(entry.name, x, y, look, listed=not lines))
    if len({curve[0]["run"] for curve in curves}) == 1:
        return [entry._replace(x=line.x, y=line.y) for line in lines]
    return lines


def _null(row: dict, value: str) -> float:
    if value == "ppl":
        return float(np.exp(row["null_nll"]))
    return row["null_nll"] * (row["bpb"] / row["nll"] if value == "bpb" else 1.0)
