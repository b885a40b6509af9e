"""Reach and order: accuracy without older settings, and preference for the last setting."""

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from posenc_jax.evaluation.protocols.latest import ALL
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import style
from posenc_jax.plots.reach import Arrow, Place, reach_and_order
from posenc_jax.report import answers, figures
from posenc_jax.report.gather import Frame, Gathered

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WORTH_A_MARK = 0.03  # gain from which an extension is drawn, in the lower of reach and order


class Ordered(NamedTuple):
    """Reach and order by group, method, length and seed."""

    points: Frame  # columns group, method, length, seed, reach, order
    trained: int  # L of all runs but the oracles
    longest: int


def of(data: Gathered) -> Ordered | None:
    """Collect reach and order; None where either protocol is missing.

    Reach is the accuracy without an older setting, relative to the ceiling; order the accuracy with
    one, rescaled from 0 for a reader without order to 1.
    """
    keys = ["group", "method", "length", "seed", "trained"]
    points = data.points
    reach = points[points.protocol == "reach"]
    latest = points[(points.protocol == "latest") & (points.part == ALL)]
    if reach.empty or latest.empty:
        return None
    reach = reach.assign(reach=reach.accuracy / reach.ceiling)[[*keys, "reach"]]
    rescaled = (latest.accuracy - latest.orderless) / (1 - latest.orderless)
    merged = pd.merge(reach, latest.assign(order=rescaled)[[*keys, "order"]], on=keys)
    longest = int(merged.length.max())
    beyond = merged[merged.trained < longest]
    trained = int(beyond.trained.min()) if len(beyond) else longest
    return Ordered(merged, trained, longest)


def arrows(data: Gathered, results: Ordered, *, brief: bool = False) -> list[Arrow]:
    """Arrows from L to the longest length, best first; an oracle is a point.

    The brief list has every encoding as trained, its best extension, and the mean window of L.
    """
    scored = answers.of(data)
    looks, result = figures.looks(data), []
    named = None if scored is None else scored._replace(names=answers.called(data, scored))
    shown = _brief(results) if brief else None
    for (group, method), rows in results.points.groupby(["group", "method"], sort=False):
        lengths = set(rows.length)
        if results.longest not in lengths:
            continue
        if shown is not None and (group, method) not in shown:
            continue
        oracle = (rows.trained >= results.longest).all()
        end = _place(rows[rows.length == results.longest])
        begin = _place(rows[rows.length == results.trained]) if results.trained in lengths else end
        name = f"{group} + {method}" if named is None else answers.entry(named, group, method)
        look = answers.look_of(looks[group], method)
        if oracle:
            look = look | {"fillstyle": "left"}
        result.append(Arrow(name, look, end if oracle else begin, end))
    result.sort(key=lambda arrow: -min(arrow.end.reach, arrow.end.order))
    if brief:
        result += _window(results)
    return result


def _brief(results: Ordered) -> set[tuple[str, str]]:
    """Every group as trained, with its best method where that gains; oracles only as trained."""
    far = results.points[
        (results.points.length == results.longest) & (results.points.method != "window")
    ]
    scores = far.groupby(["group", "method", "trained"])[["reach", "order"]].mean().min(axis=1)
    best: dict[tuple[str, str], float] = {}
    for (group, method, trained), value in scores.items():
        if method == "none" or trained < results.longest:
            best[str(group), str(method)] = float(value)
    chosen = {pair for pair in best if pair[1] == "none"}
    for group, _ in list(chosen):
        top = max((pair for pair in best if pair[0] == group), key=lambda pair: best[pair])
        if best[top] > best[group, "none"] + WORTH_A_MARK:
            chosen.add(top)
    return chosen


def _window(results: Ordered) -> list[Arrow]:
    """Arrow of the mean over all windows of L."""
    points = results.points[
        (results.points.method == "window") & (results.points.trained < results.longest)
    ]
    at = [points[points.length == length] for length in (results.trained, results.longest)]
    if any(at_length.empty for at_length in at):
        return []
    begin, end = (Place(float(p.reach.mean()), float(p.order.mean())) for p in at)
    return [
        Arrow("windows of L (mean)", {"color": style.WINDOW["color"], "marker": "x"}, begin, end)
    ]


def _place(points: Frame) -> Place:
    spread = [over_seeds(points[name]) for name in ("reach", "order")]
    ends = [None if interval is None else interval[1:] for interval in spread]
    return Place(float(points.reach.mean()), float(points.order.mean()), *ends)


def picture(data: Gathered) -> "Figure | None":
    results = of(data)
    if results is None:
        return None
    return reach_and_order(arrows(data, results, brief=True), results.trained, results.longest)
