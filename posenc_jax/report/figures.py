"""The lines of a report's figures, as means over seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.evaluation.sums import BASELINES, FRESH
from posenc_jax.lines import Line
from posenc_jax.plots import curves, style
from posenc_jax.report.gather import Frame, Gathered


def groups(data: Gathered) -> list[str]:
    """Groups with an evaluation, in the order that numbers them in the page's controls."""
    return list(dict.fromkeys(run["group"] for run in data.runs if run["evaluated"]))


def looks(data: Gathered) -> dict[str, style.Look]:
    return style.looks({run["group"]: run["encoding"] for run in data.runs})


def value_of(protocol: str) -> str:
    """Value shown for a protocol: accuracy or bits per byte."""
    return "accuracy" if protocols.find(protocol).value == "accuracy" else "bpb"


def line(
    name: str,
    points: Frame,
    look: dict[str, Any],
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


def against_length(data: Gathered, protocol: str, value: str = "bpb") -> list[Line]:
    """Lines of every group without extensions, best at the longest length first; then n-grams and
    baselines."""
    lines, baselines = [], []
    all_looks = looks(data)
    for number, group in enumerate(groups(data)):
        rows = data.points[(data.points.protocol == protocol) & (data.points.group == group)]
        plain = rows[rows.method == "none"]
        beyond = plain[plain.length >= plain.trained]
        look, grey = all_looks[group]._asdict(), {"gid": f"baseline-{number}", "listed": False}
        colour = {"color": look["color"]}
        lines.append(line(group, plain, look, value, gid=f"group-{number}"))
        for name, look in (("window", style.WINDOW), ("streaming", style.STREAMING)):
            points = rows[rows.method == name]
            baselines.append(line(f"{group}, {name}", points, look | colour, value, **grey))
        if value == "bpb":
            entry = curves.null_of(protocol)
            name = f"{group}, {entry.name.partition(':')[0]}"
            baselines.append(line(name, beyond, entry.look | colour, "null_bpb", **grey))
    lines = sorted((item for item in lines if item.x), key=lambda item: (-item.x[-1], item.y[-1]))
    points = data.points[(data.points.protocol == protocol) & (data.points.method == "none")]
    grey = counted(data, points, value) if protocol == protocols.HEADLINE else []
    return lines + grey + [item._replace(seeds=(), band=None) for item in baselines if item.x]


def yardsticks(data: Gathered, points: Frame) -> Frame:
    """N-grams counted on the training text of these runs, scored on the same targets, by order.

    Their names include the amount of text counted where it differs.
    """
    texts = {run["read"] for run in data.runs if run["id"] in set(points.id)}
    rows = data.yardsticks
    rows = rows[rows.token_hash.isin(points.token_hash) & rows["read"].isin(texts)]
    several = rows.counted.nunique() > 1
    names = [curves.gram(row.order, row.counted if several else None) for row in rows.itertuples()]
    return rows.assign(name=names).sort_values(["counted", "order"])


def counted(data: Gathered, points: Frame, value: str = "bpb") -> list[Line]:
    """A grey line for the loss of each n-gram on the same targets."""
    lengths = sorted(points.length.unique())
    return [
        curves.yardstick(
            row.order, lengths, row.bpb if value == "bpb" else float(np.exp(row.nll)), row.name
        )
        for row in yardsticks(data, points).itertuples()
        if value == "ppl" or row.bpb is not None
    ]


def extended(data: Gathered, group: str, points: Frame, by: str = "", **options: Any):
    """Lines of every extension of a group at its largest scale, or of one at all its scales."""
    rows = points[(points.group == group) & points.window.isna() & (points.method != FRESH)]
    if by:
        rows = rows[rows.extension.isin(["none", by])].sort_values("scale", na_position="first")
        scaled = iter(curves.scale_looks(rows.scale.nunique()))
    else:
        largest = rows.groupby("extension").scale.transform("max")
        rows = rows[rows.scale.isna() | (rows.scale == largest)]
        scaled = iter(())
    lines = []
    for (extension, method), points_of in rows.groupby(["extension", "method"], sort=False):
        look = next(scaled) if by else style.look_of_method(extension)._asdict()
        if extension == "none":
            look = looks(data)[group]._asdict()
        sparse = style.SPARSE if options.get("x") == "place" else {}
        lines.append(line(str(method), points_of, sparse | look, **options))
    lines = curves.apart([item for item in lines if item.x])
    return sorted(lines, key=lambda item: (item.name != "none", -item.x[-1], item.y[-1]))


def by_place(data: Gathered, protocol: str) -> list[Line]:
    """Lines of every group without extensions over the places of its longest window."""
    all_looks, lines = looks(data), []
    for number, group in enumerate(groups(data)):
        rows = data.places[(data.places.protocol == protocol) & (data.places.group == group)]
        look = style.SPARSE | all_looks[group]._asdict()
        options = dict(value="nll", x="place", gid=f"group-{number}")
        lines.append(line(group, rows[rows.method == "none"], look, **options))
    return [item for item in lines if item.x]


def distinct(rows: Mapping[tuple[str, str], tuple]) -> set[tuple[str, str]]:
    """Pairs of group and method, without methods whose values equal a plainer one of the group.

    At the longest length `dynamic_yarn` equals `yarn`; at scale 1 every extension equals `none`.
    """
    plainest: dict[tuple, str] = {}
    for method, group in sorted(((m, g) for g, m in rows), key=lambda pair: plainness(pair[0])):
        plainest.setdefault((group, rows[group, method]), method)
    return {(group, method) for (group, _), method in plainest.items()}


def plainness(method: str) -> tuple:
    return method != "none", method not in BASELINES, method.startswith("dynamic_"), method


def tokens_axis(points: Frame) -> dict[str, Any]:
    """Options of a chart for the token axis of these points."""
    return {"lengths": sorted(points.length.unique()), "trained": points.trained.unique()}


def counts(points: Frame) -> str:
    """Counts of targets behind the numbers at the longest length."""
    longest = points.sort_values("length").groupby("id", sort=False).counts.last()
    return "; ".join(longest.unique()[:3])
