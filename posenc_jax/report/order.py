"""Reach and order: who finds a setting, and who tells the last one from an older one."""

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


WORTH_A_MARK = 0.03  # gained by an extension, of reach or order, whichever is less


class Ordered(NamedTuple):
    """Reach and order by group, method, length and seed."""

    points: Frame  # columns group, method, length, seed, reach, order
    trained: int  # L of all but the oracles
    longest: int


def of(data: Gathered) -> Ordered | None:
    """None where no text asked for order.

    Reach is the accuracy without an older setting, relative to the ceiling; order the accuracy with
    one, from 0 for a reader without order to 1.
    """
    keys = ["group", "method", "length", "seed", "trained"]
    points = data.points
    reach = points[points.protocol == "reach"]
    latest = points[(points.protocol == "latest") & (points.part == ALL)]
    if reach.empty or latest.empty:
        return None
    reach = reach.assign(reach=reach.accuracy / reach.ceiling)[[*keys, "reach"]]
    gained = (latest.accuracy - latest.orderless) / (1 - latest.orderless)
    both = pd.merge(reach, latest.assign(order=gained)[[*keys, "order"]], on=keys)
    longest = int(both.length.max())
    beyond = both[both.trained < longest]
    trained = int(beyond.trained.min()) if len(beyond) else longest
    return Ordered(both, trained, longest)


def arrows(data: Gathered, found: Ordered, *, brief: bool = False) -> list[Arrow]:
    """From L to the longest length, the best at both first; an oracle has no arrow. The brief ones
    are the encodings as trained, with the best extension of each, and one window of L."""
    asked = answers.of(data)
    looks, made = figures.looks(data), []
    named = None if asked is None else asked._replace(names=answers.called(data, asked))
    shown = _brief(found) if brief else None
    for (group, method), own in found.points.groupby(["group", "method"], sort=False):
        lengths = set(own.length)
        if found.longest not in lengths:
            continue
        if shown is not None and (group, method) not in shown:
            continue
        oracle = (own.trained >= found.longest).all()
        end = _place(own[own.length == found.longest])
        begin = _place(own[own.length == found.trained]) if found.trained in lengths else end
        name = f"{group} + {method}" if named is None else answers.entry(named, group, method)
        look = answers.look_of(looks[group], method)
        if oracle:
            look = look | {"fillstyle": "left"}
        made.append(Arrow(name, look, end if oracle else begin, end))
    made.sort(key=lambda one: -min(one.end.reach, one.end.order))
    if brief:
        made += _window(found)
    return made


def _brief(found: Ordered) -> set[tuple[str, str]]:
    """Every group as trained, and with the method that is best at both, where that gains; of an
    oracle itself alone."""
    far = found.points[(found.points.length == found.longest) & (found.points.method != "window")]
    both = far.groupby(["group", "method", "trained"])[["reach", "order"]].mean().min(axis=1)
    best: dict[tuple[str, str], float] = {}
    for (group, method, trained), value in both.items():
        if method == "none" or trained < found.longest:
            best[str(group), str(method)] = float(value)
    chosen = {pair for pair in best if pair[1] == "none"}
    for group, _ in list(chosen):
        top = max((pair for pair in best if pair[0] == group), key=lambda pair: best[pair])
        if best[top] > best[group, "none"] + WORTH_A_MARK:
            chosen.add(top)
    return chosen


def _window(found: Ordered) -> list[Arrow]:
    """The mean over all windows of L, which differ by seeds and encodings alike."""
    own = found.points[(found.points.method == "window") & (found.points.trained < found.longest)]
    at = [own[own.length == length] for length in (found.trained, found.longest)]
    if any(points.empty for points in at):
        return []
    begin, end = (Place(float(p.reach.mean()), float(p.order.mean())) for p in at)
    return [
        Arrow("windows of L (mean)", {"color": style.WINDOW["color"], "marker": "x"}, begin, end)
    ]


def _place(points: Frame) -> Place:
    spread = [over_seeds(points[name]) for name in ("reach", "order")]
    ends = [None if one is None else one[1:] for one in spread]
    return Place(float(points.reach.mean()), float(points.order.mean()), *ends)


def picture(data: Gathered) -> "Figure | None":
    found = of(data)
    if found is None:
        return None
    return reach_and_order(arrows(data, found, brief=True), found.trained, found.longest)
