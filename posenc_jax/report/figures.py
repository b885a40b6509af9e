"""Lines of a report's charts, and the parts of its page."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from posenc_jax.display import NONE, Line, Table, decimal
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import curves, style
from posenc_jax.report.runs import Frame, ReportData

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
    **options: Any,
) -> Line:
    """Line of means over seeds where all are finite, with t-intervals from three seeds on."""
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
    means = [float(np.mean(values)) for values in seeds.values()]
    return Line(name, list(seeds), means, look, band, list(seeds.values()), **options)


def against_length(data: ReportData, protocol: str, value: str = "bpb") -> list[Line]:
    """Lines of every group without extensions, best at the longest length first; then n-grams and
    baselines."""
    lines, baselines = [], []
    for number, group in enumerate(data.groups):
        rows = data.points[(data.points.protocol == protocol) & (data.points.group == group)]
        plain = rows[rows.method == "none"]
        beyond = plain[plain.length >= plain.trained]
        look, grey = data.looks[group], {"gid": f"baseline-{number}", "listed": False}
        colour = {"color": look["color"]}
        lines.append(line(group, plain, look, value, gid=data.gid(group)))
        for name, look in (("window", style.WINDOW), ("streaming", style.STREAMING)):
            points = rows[rows.method == name]
            baselines.append(line(f"{group}, {name}", points, look | colour, value, **grey))
        if value == "bpb":
            entry = curves.null_of(protocol)
            name = f"{group}, {entry.name.partition(':')[0]}"
            baselines.append(line(name, beyond, entry.look | colour, "null_bpb", **grey))
    lines = sorted((item for item in lines if item.x), key=lambda item: (-item.x[-1], item.y[-1]))
    points = data.points[(data.points.protocol == protocol) & (data.points.method == "none")]
    grey = ngram_lines(data, points, value) if protocol == protocols.HEADLINE else []
    return lines + grey + [item._replace(seeds=(), band=None) for item in baselines if item.x]


def yardsticks(data: ReportData, points: Frame) -> Frame:
    """N-grams counted on the training text of these runs, scored on the same targets, by order.

    Their names include the amount of text counted where it differs.
    """
    texts = {run.read for run in data.runs if run.id in set(points.id)}
    rows = data.yardsticks
    rows = rows[rows.token_hash.isin(points.token_hash) & rows["read"].isin(texts)]
    several = rows.counted.nunique() > 1
    names = [curves.gram(row.order, row.counted if several else None) for row in rows.itertuples()]
    return rows.assign(name=names).sort_values(["counted", "order"])


def ngram_lines(data: ReportData, points: Frame, value: str = "bpb") -> list[Line]:
    """A grey line for the loss of each n-gram on the same targets."""
    lengths = sorted(points.length.unique())
    return [
        curves.yardstick(
            row.order, lengths, row.bpb if value == "bpb" else float(np.exp(row.nll)), row.name
        )
        for row in yardsticks(data, points).itertuples()
        if value == "ppl" or row.bpb is not None
    ]


def extended(data: ReportData, group: str, points: Frame, by: str = "", **options: Any):
    """Lines of every extension of a group at its largest scale, or of one at all its scales."""
    if by:
        chosen = points[points.extension.isin(["none", by])]
        rows = chosen.sort_values("scale", na_position="first")
        scaled = iter(curves.scale_looks(rows.scale.nunique()))
    else:
        largest = points.groupby("extension").scale.transform("max")
        rows = points[points.scale.isna() | (points.scale == largest)]
        scaled = iter(())
    lines = []
    for (extension, method), points_of in rows.groupby(["extension", "method"], sort=False):
        look = next(scaled) if by else style.look_of_method(extension)
        if extension == "none":
            look = data.looks[group]
        sparse = style.SPARSE if options.get("x") == "place" else {}
        lines.append(line(str(method), points_of, sparse | look, **options))
    lines = curves.apart([item for item in lines if item.x])
    return sorted(lines, key=lambda item: (item.name != "none", -item.x[-1], item.y[-1]))


def by_place(data: ReportData, protocol: str) -> list[Line]:
    """Lines of every group without extensions over the places of its longest window."""
    lines = []
    for group in data.groups:
        rows = data.places[(data.places.protocol == protocol) & (data.places.group == group)]
        look = style.SPARSE | data.looks[group]
        plain = rows[rows.method == "none"]
        lines.append(line(group, plain, look, "nll", "place", gid=data.gid(group)))
    return [item for item in lines if item.x]


def with_method(name: str, method: str) -> str:
    """Name of a group with a method."""
    return name if method == "none" else f"{name} + {method}"


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


def tokens_axis(points: Frame) -> dict[str, Any]:
    """Options of a chart for the token axis of these points."""
    return {"lengths": sorted(points.length.unique()), "trained": points.trained.unique()}


def counts_in_words(points: Frame) -> str:
    """Counts of targets behind the numbers at the longest length."""
    longest = points.sort_values("length").groupby("id", sort=False).counts.last()
    return "; ".join(longest.unique()[:3])


SIZE = (6.2, 4.9)  # inches; half of a wide window, all of a narrow one


class Chart(NamedTuple):
    """A figure with a button that saves it as PNG; the name must be unique on the page."""

    name: str
    title: str
    svg: str


class Block(NamedTuple):
    """Content of a section, shown only where every control in `when` has the given value."""

    when: Mapping[str, str] = {}
    heading: str = ""
    text: str = ""
    charts: Sequence[Chart] = ()
    table: Table | None = None
    files: Mapping[str, Frame] = {}  # offered for download as CSV


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
    groups: Mapping[str, str] = {}  # group -> colour, for the controls of the whole page


def chart(figure: "Figure", name: str, title: str) -> Chart:
    return Chart(name, title, style.svg(figure, name, title))


def chart_with_table(
    drawn: Sequence[Line],
    name: str,
    title: str,
    y: str,
    when: Mapping[str, str] = {},
    *,
    closer: bool = False,
    every: int = 1,
    **options: Any,
) -> Block:
    """A chart of lines, a closer view of those near the best, and a table of the lines' values.

    The table has every `every`-th place of the horizontal axis, its CSV all places.
    """
    if not any(line.x for line in drawn):
        return Block(when, text="nothing to show yet")
    options |= {"y": y, "size": SIZE, "below": True}
    charts = [chart(curves.chart(drawn, **options), name, title)]
    view = curves.near(drawn) if closer else None
    if view is not None:
        bare = [line._replace(band=None) for line in drawn]
        figure = curves.chart(bare, views=[view], **options)
        charts.append(chart(figure, f"{name}-closer", f"{title}, closer"))
    places = sorted({at for line in drawn for at in line.x})
    shown = sorted({*places[::every], *places[-1:]})
    table = Table(
        "",
        [y, *(f"{at:,.0f}" for at in shown)],
        [[line.name, *(_cell(line, at) for at in shown)] for line in drawn],
        gids=[line.gid or "" for line in drawn],
    )
    return Block(when, charts=charts, table=table, files={name: _frame(drawn)})


def _cell(line: Line, at: float) -> str:
    """A value, with half the width of its interval where it has one."""
    if at not in line.x:
        return NONE
    index = list(line.x).index(at)
    half = "" if line.band is None else f" ± {decimal(line.band[1][index] - line.y[index])}"
    return f"{decimal(line.y[index])}{half}"


def _frame(drawn: Sequence[Line]) -> Frame:
    rows = [
        {
            "line": line.name,
            "x": at,
            "value": line.y[i],
            "low": line.band[0][i] if line.band else None,
            "high": line.band[1][i] if line.band else None,
            "seeds": " ".join(f"{v:.6g}" for v in line.seeds[i]) if line.seeds else "",
        }
        for line in drawn
        for i, at in enumerate(line.x)
    ]
    return pd.DataFrame(rows)


def ends(interval: tuple[float, float] | None) -> str:
    """An interval as text; a dash where there is none."""
    if interval is None or not all(map(isfinite, interval)):
        return NONE
    return " to ".join(map(decimal, interval))
