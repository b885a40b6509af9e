"""How far training came: loss against steps, who is not done, and which n-gram was reached."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.statistics import slope
from posenc_jax.plots import style
from posenc_jax.plots.curves import Line
from posenc_jax.report import figures
from posenc_jax.report.gather import Frame, Gathered

FASTER = 2.0  # than the best's, and a loss is not done falling
FEWEST = 4  # logged steps in the last quarter


class Learned(NamedTuple):
    """How a group's training loss fell over the last quarter of its steps, in nats per token."""

    group: str
    loss: float  # the mean over that quarter
    fall: float  # by its least squares
    interval: tuple[float, float]  # 95%
    of_best: float | None  # the fall of the best of those trained on the same; None: itself
    reached: str  # the longest n-gram that is no better at L; empty where none was counted

    @property
    def done(self) -> bool:
        """Whether it does not fall more than twice as fast as the best."""
        falls = self.interval[0] > 0
        return self.of_best is None or not falls or self.fall <= FASTER * max(self.of_best, 0.0)


def losses(data: Gathered, name: str) -> Frame:
    """A row per logged step of a run that is in the means."""
    rows = [
        {"group": run["group"], "step": step, name: value}
        for run in data.runs
        if run["evaluated"] and not run.get("left_out")
        for step, value in run["learned"][name]
    ]
    return pd.DataFrame(rows, columns=["group", "step", name])


def lines(data: Gathered, name: str) -> list[Line]:
    """Means over seeds against steps, the lowest at the end first."""
    every, table, made = figures.looks(data), losses(data, name), []
    for number, group in enumerate(figures.groups(data)):
        look = style.SPARSE | every[group]._asdict() | {"linewidth": 1.2}
        own = table[table.group == group]
        made.append(figures.line(group, own, look, name, "step", gid=f"group-{number}"))
    made = [one._replace(seeds=(), band=None) for one in made if one.x]
    return sorted(made, key=lambda one: one.y[-1])


def of(data: Gathered) -> list[Learned]:
    """Groups with enough logged steps, the lowest loss first."""
    families: dict[str, list[Learned]] = {}
    table = losses(data, "loss")
    for group in figures.groups(data):
        run = next(run for run in data.runs if run["group"] == group)
        own = table[(table.group == group) & (table.step > 0.75 * run["steps"])]
        means = own.groupby("step").loss.mean()
        if len(means) < FEWEST:
            continue
        fall = slope(means.index.to_numpy(float), -means.to_numpy())
        quarter = run["steps"] / 4
        ends = (quarter * fall.low, quarter * fall.high)
        made = Learned(group, float(means.mean()), quarter * fall.mean, ends, None, "")
        families.setdefault(run["read"], []).append(made)
    return sorted(
        (one for family in families.values() for one in _beside_best(data, family)),
        key=lambda one: one.loss,
    )


def _beside_best(data: Gathered, family: Sequence[Learned]) -> list[Learned]:
    best = min(family, key=lambda one: one.loss)
    return [
        one._replace(of_best=None if one is best else best.fall, reached=reached(data, one.group))
        for one in family
    ]


def reached(data: Gathered, group: str) -> str:
    """The longest n-gram that is no better than a group at L, on the same targets."""
    points = data.points[(data.points.group == group) & (data.points.method == "none")]
    points = points[(points.protocol == protocols.HEADLINE) & (points.length == points.trained)]
    own = figures.yardsticks(data, points)
    bits = points.bpb.mean()
    if own.empty or not np.isfinite(bits):
        return ""
    beaten = own[own.bpb >= bits].order
    return f"{beaten.max()}-gram" if len(beaten) else f"not the {own.order.min()}-gram"


def not_done(data: Gathered) -> list[str]:
    return [one.group for one in of(data) if not one.done]
