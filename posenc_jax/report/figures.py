"""The lines of a report's figures, as means over seeds, and its PNG of every protocol."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import curves, style
from posenc_jax.plots.curves import Line
from posenc_jax.report.gather import Frame, Gathered


def groups(data: Gathered) -> list[str]:
    """Groups with an evaluation; their numbers are what the page's controls find them by."""
    return list(dict.fromkeys(run["group"] for run in data.runs if run["evaluated"]))


def looks(data: Gathered) -> dict[str, style.Look]:
    return style.looks({run["group"]: run["encoding"] for run in data.runs})


def value_of(protocol: str) -> str:
    """What a report shows of a protocol: the share of right answers, or bits per byte."""
    return "accuracy" if protocols.find(protocol).value == "accuracy" else "bpb"


def line(
    name: str,
    points: Frame,
    look: dict[str, Any],
    value: str = "bpb",
    x: str = "length",
    **options: Any,
) -> Line:
    """The mean over seeds wherever all are finite, with a t-interval where there are three."""
    seeds = {
        at: [float(v) for v in values]
        for at, values in points.groupby(x)[value]
        if values.notna().all()
    }
    spread = [over_seeds(values) for values in seeds.values()]
    known = [one for one in spread if one is not None]
    whole = bool(spread) and len(known) == len(spread)
    band = ([one[1] for one in known], [one[2] for one in known]) if whole else None
    means = [float(np.mean(values)) for values in seeds.values()]
    return Line(name, list(seeds), means, look, band, list(seeds.values()), **options)


def against_length(data: Gathered, protocol: str, value: str = "bpb") -> list[Line]:
    """Every group without an extension, the best at the longest length first; then baselines."""
    lines, baselines = [], []
    every = looks(data)
    for number, group in enumerate(groups(data)):
        own = data.points[(data.points.protocol == protocol) & (data.points.group == group)]
        plain, window = own[own.method == "none"], own[own.method == "window"]
        beyond = plain[plain.length >= plain.trained]
        look, grey = every[group]._asdict(), {"gid": f"baseline-{number}", "listed": False}
        colour = {"color": look["color"]}
        lines.append(line(group, plain, look, value, gid=f"group-{number}"))
        baselines.append(line(f"{group}, window", window, style.WINDOW | colour, value, **grey))
        if value == "bpb":
            null = line(f"{group}, null", beyond, style.NULL | colour, "null_bpb", **grey)
            baselines.append(null)
    lines = sorted((one for one in lines if one.x), key=lambda one: (-one.x[-1], one.y[-1]))
    points = data.points[(data.points.protocol == protocol) & (data.points.method == "none")]
    grey = counted(data, points, value) if protocol == protocols.HEADLINE else []
    return lines + grey + [one._replace(seeds=(), band=None) for one in baselines if one.x]


def yardsticks(data: Gathered, points: Frame) -> Frame:
    """The n-grams of the text that these points' runs read, scored on the same targets, by order;
    with what was counted in the name where that is not the same for all."""
    read = {run["read"] for run in data.runs if run["id"] in set(points.id)}
    own = data.yardsticks
    own = own[own.token_hash.isin(points.token_hash) & own["read"].isin(read)]
    several = own.counted.nunique() > 1
    names = [curves.gram(row.order, row.counted if several else None) for row in own.itertuples()]
    return own.assign(name=names).sort_values(["counted", "order"])


def counted(data: Gathered, points: Frame, value: str = "bpb") -> list[Line]:
    """A grey line for each n-gram: what counting makes of the same targets."""
    lengths = sorted(points.length.unique())
    return [
        curves.yardstick(
            row.order, lengths, row.bpb if value == "bpb" else float(np.exp(row.nll)), row.name
        )
        for row in yardsticks(data, points).itertuples()
        if value == "ppl" or row.bpb is not None
    ]


def extended(data: Gathered, group: str, points: Frame, by: str = "", **options: Any):
    """Every extension of a group at its largest scale, or one of them at all of its scales."""
    own = points[(points.group == group) & points.window.isna()]
    if by:
        own = own[own.extension.isin(["none", by])].sort_values("scale", na_position="first")
        scaled = iter(curves.scale_looks(own.scale.nunique()))
    else:
        largest = own.groupby("extension").scale.transform("max")
        own = own[own.scale.isna() | (own.scale == largest)]
        scaled = iter(())
    lines = []
    for (extension, method), points_of in own.groupby(["extension", "method"], sort=False):
        look = next(scaled) if by else style.look_of_method(extension)._asdict()
        if extension == "none":
            look = looks(data)[group]._asdict()
        sparse = style.SPARSE if options.get("x") == "place" else {}
        lines.append(line(str(method), points_of, sparse | look, **options))
    lines = curves.apart([one for one in lines if one.x])
    return sorted(lines, key=lambda one: (one.name != "none", -one.x[-1], one.y[-1]))


def by_place(data: Gathered, protocol: str) -> list[Line]:
    """Every group without an extension, over the places of its longest window."""
    every, lines = looks(data), []
    for number, group in enumerate(groups(data)):
        own = data.places[(data.places.protocol == protocol) & (data.places.group == group)]
        look = style.SPARSE | every[group]._asdict()
        options = dict(value="nll", x="place", gid=f"group-{number}")
        lines.append(line(group, own[own.method == "none"], look, **options))
    return [one for one in lines if one.x]


def distinct(rows: Mapping[tuple[str, str], tuple]) -> set[tuple[str, str]]:
    """The groups and methods whose values are not those of a plainer method of the same group.

    At the longest length `dynamic_yarn` is `yarn`; at scale 1 every extension is `none`.
    """
    plainest: dict[tuple, str] = {}
    for method, group in sorted(((m, g) for g, m in rows), key=lambda one: plainness(one[0])):
        plainest.setdefault((group, rows[group, method]), method)
    return {(group, method) for (group, _), method in plainest.items()}


def plainness(method: str) -> tuple:
    return method != "none", method != "window", method.startswith("dynamic_"), method


def tokens_axis(points: Frame) -> dict[str, Any]:
    """What a chart of these points needs for an axis of tokens."""
    return {"lengths": sorted(points.length.unique()), "trained": points.trained.unique()}


def counts(points: Frame) -> str:
    """What the numbers at the longest length are of."""
    longest = points.sort_values("length").groupby("id", sort=False).counts.last()
    return "; ".join(longest.unique()[:3])
