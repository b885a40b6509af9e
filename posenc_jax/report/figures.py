"""Lines of a report's charts, and the parts of its page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posenc_jax import composition
from posenc_jax.display import NONE, Line, Table, rounded
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import style
from posenc_jax.report.runs import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def value_of(protocol: str) -> str:
    """Value shown for a protocol: accuracy or bits per byte."""
    return "accuracy" if protocols.find(protocol).value == "accuracy" else "bpb"


def line(
    name: str,
    points: Frame,
    look: style.Look,
    value: str = "bpb",
    x: str = "length",
) -> Line:
    """Line of means over seeds where all are finite, with t-intervals from three seeds on, or the
    mean interval over documents."""
    seeds = {
        at: [float(v) for v in values]
        for at, values in points.groupby(x)[value]
        if values.notna().all()
    }
    spread = [over_seeds(values) for values in seeds.values()]
    intervals = [interval for interval in spread if interval is not None]
    complete = bool(spread) and len(intervals) == len(spread)
    lows, highs = ([interval[i] for interval in intervals] for i in (1, 2))
    band = (lows, highs) if complete else None
    if not complete and seeds and f"{value}_low" in points:
        ends = points.groupby(x)[[f"{value}_low", f"{value}_high"]].mean().loc[list(seeds)]
        lows, highs = (ends[end].tolist() for end in ends)
        band = (lows, highs) if np.isfinite([lows, highs]).all() else None
    means = [float(np.mean(values)) for values in seeds.values()]
    return Line(name, list(seeds), means, look, band)


def by_length(points: Frame, value: str) -> list[Line]:
    """A line of every method and baseline of every group, best at the longest length first."""
    known = points.groupby(["group", "method"], sort=False)
    lines = [line(with_method(*pair), rows, {}, value) for pair, rows in known]
    sign = 1 if value == "bpb" else -1
    return sorted(
        (item for item in lines if item.x), key=lambda item: (-item.x[-1], sign * item.y[-1])
    )


def with_method(name: str, method: str) -> str:
    """Name of a group with a method, as papers write them."""
    if method == "none" or method in BASELINES:
        return style.written(name) + (f", {BASELINES[method]}" if method in BASELINES else "")
    words = []
    for part in composition.parts(method):
        scale = "" if part.scale is None else f" by {part.scale:g}"
        options = ", ".join(f"{option} {value}" for option, value in part.options.items())
        words.append(style.written(part.name) + scale + (f" ({options})" if options else ""))
    return f"{style.written(name)} with {' and '.join(words)}"


def distinct(rows: Mapping[tuple[str, str], tuple]) -> set[tuple[str, str]]:
    """Pairs of group and method, without methods whose values equal a plainer one of the group.

    At the longest length `dynamic_yarn` equals `yarn`; at scale 1 every extension equals `none`.
    """
    plainest: dict[tuple, str] = {}
    for method, group in sorted(((m, g) for g, m in rows), key=lambda pair: plainness(pair[0])):
        plainest.setdefault((group, rows[group, method]), method)
    return {(group, method) for (group, _), method in plainest.items()}


def plainness(method: str) -> tuple:
    """Rank of a method among those with equal values: the plainest comes first."""
    follows = method.startswith(("dynamic_", "stepped_"))
    return method != "none", method not in BASELINES, follows, method


def counts_in_words(points: Frame) -> str:
    """Counts of targets behind the numbers at the longest length."""
    longest = points.sort_values("length").groupby("id", sort=False).counts.last()
    return "; ".join(longest.unique()[:3])


class Chart(NamedTuple):
    """A figure and its title."""

    title: str
    svg: str


class Block(NamedTuple):
    """Content of a section, shown only where every control in `when` has the given value."""

    when: Mapping[str, str] = {}
    heading: str = ""
    text: str = ""
    charts: Sequence[Chart] = ()
    table: Table | None = None


class Select(NamedTuple):
    """A drop-down control; `options` maps its values to their labels."""

    name: str
    label: str
    options: Mapping[str, str]
    chosen: str = ""


class Section(NamedTuple):
    """A part of the page, with its controls above the content they show or hide."""

    title: str
    sentence: str
    blocks: Sequence[Block]
    controls: Sequence[Select] = ()


def chart(figure: "Figure", name: str, title: str) -> Chart:
    """The name must be unique on the page."""
    return Chart(title, style.svg(figure, name, title))


def table_of(drawn: Sequence[Line], words: str, every: int = 1) -> Table:
    places = sorted({at for line in drawn for at in line.x})
    shown = sorted({*places[::every], *places[-1:]})
    rows = [[line.name, *(_cell(line, at) for at in shown)] for line in drawn]
    return Table("", [words, *(f"{at:,.0f}" for at in shown)], rows)


def _cell(line: Line, at: float) -> str:
    """A value, with half the width of its interval where it has one."""
    if at not in line.x:
        return NONE
    index = list(line.x).index(at)
    if line.band is None:
        return rounded(line.y[index])
    interval = line.band[0][index], line.band[1][index]
    half = (interval[1] - interval[0]) / 2
    return f"{rounded(line.y[index], interval)} ± {rounded(half, interval)}"
