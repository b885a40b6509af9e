"""The decision rule of the page on order: which pairs of methods change places with the budget."""

from itertools import combinations
from typing import NamedTuple

import pandas as pd
from scipy import stats

from posenc_jax.evaluation.statistics import holm

LEVEL = 0.05


class Flip(NamedTuple):
    """A pair whose difference in order, paired by seed, is positive at one budget and negative at
    another, both intervals excluding 0."""

    one: str
    other: str
    ahead: int  # steps at which the first is ahead
    behind: int
    gained: float  # differences at these budgets
    lost: float


def flips(order: pd.DataFrame, budgets: list[int]) -> list[Flip]:
    """The pairs that flip between budgets, from columns method, steps, seed and order.

    p-values of t tests over the seeds that both methods have are corrected (Holm) over all pairs
    and budgets together.
    """
    wide = order.pivot_table("order", ["steps", "seed"], "method")
    tested = []
    for one, other in combinations(sorted(wide), 2):
        for steps in budgets:
            differences = (wide.loc[steps, one] - wide.loc[steps, other]).dropna()
            if len(differences) > 2:
                p = float(stats.ttest_1samp(differences, 0).pvalue)
                tested.append((one, other, steps, float(differences.mean()), p))
    corrected = holm([p for *_, p in tested])
    clear = [row[:4] for row, one in zip(tested, corrected, strict=True) if one.p < LEVEL]
    found = []
    for one, other in dict.fromkeys((row[0], row[1]) for row in clear):
        own = {row[2]: row[3] for row in clear if row[:2] == (one, other)}
        ahead = [steps for steps in own if own[steps] > 0]
        behind = [steps for steps in own if own[steps] < 0]
        if ahead and behind:
            most, least = max(ahead, key=own.__getitem__), min(behind, key=own.__getitem__)
            found.append(Flip(one, other, most, least, own[most], own[least]))
    return found
