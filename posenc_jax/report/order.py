"""Reach and order: who finds a setting, and who tells the last one from an older one."""

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from posenc_jax.evaluation.protocols.latest import ALL
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots.reach import Arrow, Place, reach_and_order
from posenc_jax.report import answers, figures
from posenc_jax.report.gather import Frame, Gathered

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def arrows(data: Gathered, found: Ordered) -> list[Arrow]:
    """From L to the longest length, the best at both first; an oracle has no arrow."""
    asked = answers.of(data)
    looks, made = figures.looks(data), []
    named = None if asked is None else asked._replace(names=answers.called(data, asked))
    for (group, method), own in found.points.groupby(["group", "method"], sort=False):
        lengths = set(own.length)
        if found.longest not in lengths:
            continue
        end = _place(own[own.length == found.longest])
        begin = _place(own[own.length == found.trained]) if found.trained in lengths else end
        oracle = (own.trained >= found.longest).all()
        name = f"{group} + {method}" if named is None else answers.entry(named, group, method)
        look = answers.look_of(looks[group], method)
        made.append(Arrow(name, look, end if oracle else begin, end))
    return sorted(made, key=lambda one: -min(one.end.reach, one.end.order))


def _place(points: Frame) -> Place:
    spread = [over_seeds(points[name]) for name in ("reach", "order")]
    ends = [None if one is None else one[1:] for one in spread]
    return Place(float(points.reach.mean()), float(points.order.mean()), *ends)


def picture(data: Gathered) -> "Figure | None":
    found = of(data)
    if found is None:
        return None
    return reach_and_order(arrows(data, found), found.trained, found.longest)
