"""How far training came: loss against steps, who is not done, and which n-gram was reached."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import style
from posenc_jax.plots.curves import Line
from posenc_jax.report import figures
from posenc_jax.report.gather import Frame, Gathered, in_means, members

FASTER = 2.0  # than the best's, and a loss is not done falling
LATE = 0.75  # of the steps; the fall is from the last loss logged before


class Learned(NamedTuple):
    """How the held-out loss of a group's runs still fell at the end, in nats per token.

    That of a training step is too noisy for this: a batch is worth a tenth of a nat.
    """

    group: str
    loss: float  # at the last step, the mean over seeds
    falls: dict[int, float]  # by seed, scaled to a quarter of the steps
    of_best: dict[int, float] | None  # those of the best one trained on the same; None: itself
    reached: str  # the longest n-gram at L of which it and all shorter are no better

    @property
    def fall(self) -> float:
        return float(np.mean(list(self.falls.values())))

    @property
    def interval(self) -> tuple[float, float] | None:
        """95%, over three seeds or more."""
        found = over_seeds(list(self.falls.values()))
        return None if found is None else found[1:]

    @property
    def done(self) -> bool:
        """Whether it does not fall more than twice as fast as the best; where both have three
        seeds, beyond what these differ by."""
        if self.of_best is None:
            return True
        allowed = {seed: FASTER * max(fall, 0.0) for seed, fall in self.of_best.items()}
        shared = [self.falls[seed] - allowed[seed] for seed in self.falls if seed in allowed]
        found = over_seeds(shared)
        if found is not None:
            return found[1] <= 0
        return self.fall <= float(np.mean(list(allowed.values())))


def losses(data: Gathered, name: str) -> Frame:
    """A row per logged step of a run that is in the means."""
    rows = [
        {"group": run["group"], "step": step, name: value}
        for run in data.runs
        if in_means(run)
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
    """Groups whose held-out loss was logged late and at the end, the lowest first."""
    families: dict[str, list[Learned]] = {}
    for group in figures.groups(data):
        runs = members(data, group)
        falls = {run["seed"]: fall for run in runs if (fall := fall_of(run)) is not None}
        if falls:
            ends = [run["learned"]["valid_loss"][-1][1] for run in runs if run["seed"] in falls]
            made = Learned(group, float(np.mean(ends)), falls, None, "")
            families.setdefault(runs[0]["read"], []).append(made)
    return sorted(
        (one for family in families.values() for one in _beside_best(data, family)),
        key=lambda one: one.loss,
    )


def fall_of(run: dict) -> float | None:
    """How far a run's held-out loss fell, as if in the last quarter of its steps; None where it was
    not logged at the last step and once by three quarters of them."""
    losses, last = dict(run["learned"]["valid_loss"]), run["steps"]
    early = [step for step in losses if step <= LATE * last]
    if last not in losses or not early:
        return None
    begin = max(early)
    return (losses[begin] - losses[last]) * (1 - LATE) * last / (last - begin)


def _beside_best(data: Gathered, family: Sequence[Learned]) -> list[Learned]:
    best = min(family, key=lambda one: one.loss)
    return [
        one._replace(of_best=None if one is best else best.falls, reached=reached(data, one.group))
        for one in family
    ]


def reached(data: Gathered, group: str) -> str:
    """The longest n-gram that is no better than a group at L, on the same targets, as no shorter
    one is: longer ones are worse again where little was counted. Empty where none was."""
    points = data.points[(data.points.group == group) & (data.points.method == "none")]
    points = points[(points.protocol == protocols.HEADLINE) & (points.length == points.trained)]
    own = figures.yardsticks(data, points)
    bits = points.bpb.mean()
    if own.empty or not np.isfinite(bits):
        return ""
    own = own[own.counted == own.counted.min()].sort_values("order")
    level = own[(own.bpb >= bits).cummin()].order
    return f"{level.max()}-gram" if len(level) else f"not the {own.order.min()}-gram"


def not_done(data: Gathered) -> list[str]:
    return [one.group for one in of(data) if not one.done]
