"""Progress of training: loss against steps, and unfinished groups."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from posenc_jax.display import Line
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import curves, style
from posenc_jax.report import figures
from posenc_jax.report.runs import Frame, ReportData, Run

FASTER = 2.0  # a loss that falls this many times as fast as the best's is not done
LATE = 0.75  # share of the steps; the fall starts at the last loss logged before


class Learned(NamedTuple):
    """Fall of a group's held-out loss at the end of training, in nats per token.

    The loss of training steps is too noisy for this: batches differ by a tenth of a nat.
    """

    group: str
    loss: float  # at the last step, mean over seeds
    falls: dict[int, float]  # by seed, scaled to a quarter of the steps
    of_best: dict[int, float] | None  # falls of the best group on the same text; None: itself

    @property
    def fall(self) -> float:
        return float(np.mean(list(self.falls.values())))

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% interval over seeds; None for fewer than three."""
        interval = over_seeds(list(self.falls.values()))
        return None if interval is None else interval[1:]

    @property
    def done(self) -> bool:
        """False if it falls more than FASTER times as fast as the best group; with three common
        seeds the difference must be significant."""
        if self.of_best is None:
            return True
        allowed = {seed: FASTER * max(fall, 0.0) for seed, fall in self.of_best.items()}
        excess = [self.falls[seed] - allowed[seed] for seed in self.falls if seed in allowed]
        interval = over_seeds(excess)
        if interval is not None:
            return interval[1] <= 0
        return self.fall <= float(np.mean(list(allowed.values())))


def losses_by_step(data: ReportData, name: str) -> Frame:
    """A loss of every run by step."""
    rows = [
        {"group": run.group, "seed": run.seed, "step": step, name: value}
        for run in data.runs
        if run.in_means
        for step, value in run.learned[name]
    ]
    return pd.DataFrame(rows, columns=["group", "seed", "step", name])


def learning_curves(data: ReportData, losses: Frame, name: str) -> list[Line]:
    """Lines of means over seeds against steps, lowest final loss first."""
    encodings = {run.group: run.encoding for run in data.runs}
    result = []
    for group in data.groups:
        look = style.SPARSE | style.look_of_encoding(encodings[group]) | {"linewidth": 1.2}
        result.append(figures.line(group, losses[losses.group == group], look, name, "step"))
    result = curves.apart([item._replace(band=None) for item in result if item.x])
    return sorted(result, key=lambda item: item.y[-1])


def groups_by_loss(data: ReportData) -> list[Learned]:
    """Groups with a held-out loss before the last quarter and at the end, lowest first."""
    families: dict[str, list[Learned]] = {}
    for group in data.groups:
        runs = [run for run in data.runs if run.group == group and run.in_means]
        falls = {run.seed: fall for run in runs if (fall := fall_of(run)) is not None}
        if falls:
            ends = [run.learned["valid_loss"][-1][1] for run in runs if run.seed in falls]
            learned = Learned(group, float(np.mean(ends)), falls, None)
            families.setdefault(runs[0].read, []).append(learned)
    return sorted(
        (item for family in families.values() for item in _beside_best(family)),
        key=lambda item: item.loss,
    )


def fall_of(run: Run) -> float | None:
    """Fall of a run's held-out loss, scaled to the last quarter of its steps.

    None unless it was logged at the last step and within the first three quarters.
    """
    losses, last = dict(run.learned["valid_loss"]), run.config.steps
    early = [step for step in losses if step <= LATE * last]
    if last not in losses or not early:
        return None
    begin = max(early)
    return (losses[begin] - losses[last]) * (1 - LATE) * last / (last - begin)


def _beside_best(family: Sequence[Learned]) -> list[Learned]:
    best = min(family, key=lambda item: item.loss)
    return [item if item is best else item._replace(of_best=best.falls) for item in family]
