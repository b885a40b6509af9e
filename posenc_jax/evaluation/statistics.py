"""Means over tokens, their errors over documents, and differences of what was scored alike."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


def mean_and_error(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float | None]:
    """The mean over tokens, and its standard error over documents (ratio estimator)."""
    mean = float(sums.sum() / counts.sum())
    documents = len(sums)
    if documents < 2:
        return mean, None
    spread = np.sum((sums - mean * counts) ** 2) * documents / (documents - 1)
    return mean, float(np.sqrt(spread) / counts.sum())


class Difference(NamedTuple):
    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def paired(
    sums: np.ndarray,  # [D], of one row
    others: np.ndarray,  # [D], of the other, over the same targets
    counts: np.ndarray,  # [D]
    *,
    draws: int = 4_000,
    seed: int = 0,
) -> Difference:
    """One mean less the other, with a bootstrap 95% interval over documents."""
    difference = np.asarray(sums, np.float64) - others
    rng = np.random.default_rng(seed)
    chosen = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=draws)
    low, high = np.percentile((chosen @ difference) / (chosen @ counts), [2.5, 97.5])
    return Difference(float(difference.sum() / counts.sum()), float(low), float(high))


def over_seeds(values) -> tuple[float, float, float] | None:
    """The mean of three seeds or more with its 95% t-interval; fewer say nothing."""
    values = np.asarray(values, np.float64)
    if len(values) < 3:
        return None
    from scipy.stats import t

    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


def series(
    curves: Sequence[dict], field: str, beyond: int = 0
) -> tuple[list[int], list[list[float]]]:
    """Lengths, and at each the values of every seed; not where that of one is not finite."""
    found: dict[int, list[float]] = {}
    for curve in curves:
        for point in curve["points"]:
            if point["length"] >= beyond:
                found.setdefault(point["length"], []).append(point[field])
    whole = sorted(length for length, values in found.items() if None not in values)
    return whole, [found[length] for length in whole]
