"""Means over tokens, their standard errors over documents or other units, and differences."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posenc_jax.runtime.terminal import counted


def mean_and_error(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float | None]:
    """Mean over tokens, and its standard error over documents with tokens (ratio estimator)."""
    mean = float(sums.sum() / counts.sum())
    documents = int((counts > 0).sum())
    if documents < 2:
        return mean, None
    spread = np.sum((sums - mean * counts) ** 2) * documents / (documents - 1)
    return mean, float(np.sqrt(spread) / counts.sum())


# Over fewer documents no difference is called clear: the interval keeps its level down to two
# documents, but only where differences are roughly symmetric.
FEWEST_DOCUMENTS = 10
FEW_DOCUMENTS = 5  # with fewer an evaluation warns
FEWEST_SEEDS = 3  # for an interval
PACKAGE, STRETCH = "package", "stretch"


class Units(NamedTuple):
    """What an interval is over: documents, packages of them, or stretches of one document."""

    number: int
    kind: str | None  # None: documents

    @property
    def documents(self) -> int:
        """Independent texts: a package is one, and all stretches are one."""
        return 1 if self.kind == STRETCH else self.number

    @property
    def enough(self) -> bool:
        """True if there are enough documents to call a difference clear."""
        return self.documents >= FEWEST_DOCUMENTS

    def __str__(self) -> str:
        of_one = " of 1 document" if self.kind == STRETCH else ""
        return counted(self.number, self.kind or "document") + of_one


class Difference(NamedTuple):
    mean: float
    low: float  # -inf, and high inf, where one unit holds all tokens
    high: float
    units: Units
    p: float  # two-sided p-value against a difference of zero

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    @property
    def clear(self) -> bool:
        """Return True if the interval excludes zero, over enough documents."""
        return self.excludes_zero and self.units.enough


Terms = Sequence[tuple[float, np.ndarray, np.ndarray]]  # (coefficient, sums [D], counts [D])


def combined(terms: Terms, kind: str | None = None) -> Difference:
    """Sum of coefficient * sums.sum() / counts.sum(), with a 95% t-interval over documents.

    The sum is linearised in the documents, with residuals corrected for leverage (HC2; MacKinnon
    and White, 1985) and Satterthwaite's degrees of freedom (Bell and McCaffrey, 2002), which are
    D - 1 where the documents are equally long.
    """
    # False positives between equal systems in % at 4 | 10 | 40 documents, with noise per token and
    # per document (20,000 simulated comparisons; 4,000 for the percentile bootstrap):
    #                             bootstrap       t, D - 1      this
    # equally long                20 | 10 | 5     5 |  5 |  5   5 | 5 | 5
    # one or two windows each     19 | 10 | 6     6 |  6 |  5   5 | 5 | 5
    # lognormal lengths, sigma 1  22 | 11 | 7    13 | 12 |  8   5 | 6 | 6
    # half of the tokens in one   19 | 11 | 8     8 | 17 | 32   5 | 5 | 4
    # Heavy tails give 3 to 5. Skewed differences (exponential) defeat all three: 9 | 8 | 6.
    coefficients = np.array([coefficient for coefficient, _, _ in terms], np.float64)
    sums = np.array([term_sums for _, term_sums, _ in terms], np.float64)  # [terms, D]
    counts = np.array([term_counts for _, _, term_counts in terms], np.float64)
    present = counts.any(axis=0)
    sums, counts = sums[:, present], counts[:, present]
    totals = counts.sum(axis=1, keepdims=True)
    ratios = sums.sum(axis=1, keepdims=True) / totals
    mean, units = float(coefficients @ ratios[:, 0]), Units(int(present.sum()), kind)
    leverage = counts / totals
    if np.any(leverage == 1):
        return Difference(mean, -np.inf, np.inf, units, 1.0)
    influence = coefficients @ ((sums - ratios * counts) / (totals * np.sqrt(1 - leverage)))
    freedom = _freedom(np.abs(coefficients) @ leverage / np.abs(coefficients).sum())
    error = float(np.sqrt(np.sum(influence**2)))
    half = _t(freedom) * error
    return Difference(mean, mean - half, mean + half, units, float(_p(mean, error, freedom)))


def _freedom(shares: np.ndarray) -> float:
    """Degrees of freedom of a standard error over documents with these shares of the tokens."""
    crossed = shares**2 / (1 - shares)
    return float(1 / (np.sum(shares**2) + crossed.sum() ** 2 - np.sum(crossed**2)))


def paired(
    sums: np.ndarray,  # [D], of one row
    others: np.ndarray,  # [D], of the other row, over the same targets
    counts: np.ndarray,  # [D]
    kind: str | None = None,  # of `Units`
) -> Difference:
    """Difference of two means, with a 95% t-interval over documents."""
    return combined([(1.0, np.asarray(sums, np.float64) - others, counts)], kind)


class Spread(NamedTuple):
    """Means of rows with their standard errors over documents or seeds; nan: unknown."""

    mean: np.ndarray  # [N]
    error: np.ndarray  # [N]
    freedom: np.ndarray | float

    @property
    def p(self) -> np.ndarray:
        """Two-sided p-values against a mean of zero."""
        return _p(self.mean, self.error, self.freedom)


def over_documents(differences: np.ndarray, counts: np.ndarray) -> Spread:
    """Mean and standard error of each row of differences [N, D], as in `paired`."""
    present = counts > 0
    leverage = counts[present] / counts.sum()
    differences = differences[:, present]
    means = differences.sum(axis=1) / counts.sum()
    if np.any(leverage == 1):
        return Spread(means, np.full(len(means), np.inf), 1.0)
    influence = (differences - means[:, None] * counts[present]) / np.sqrt(1 - leverage)
    errors = np.sqrt(np.sum(influence**2, axis=1)) / counts.sum()
    return Spread(means, errors, _freedom(leverage))


def of_seeds(values: np.ndarray, present: np.ndarray) -> Spread:
    """Mean and standard error of each row [N, S] over the seeds present; nan below three seeds."""
    counts = present.sum(axis=1)
    enough = np.where(counts >= FEWEST_SEEDS, counts, FEWEST_SEEDS)
    means = np.where(present, values, 0).sum(axis=1) / np.maximum(counts, 1)
    squares = np.where(present, (values - means[:, None]) ** 2, 0).sum(axis=1)
    errors = np.sqrt(squares / (enough - 1) / enough)
    return Spread(means, np.where(counts >= FEWEST_SEEDS, errors, np.nan), enough - 1)


def p_of_both(documents: Spread, seeds: Spread) -> np.ndarray:
    """Two-sided p-value against a mean of zero, with both documents and seeds as random samples.

    Their variances add up, with Satterthwaite's degrees of freedom. The p-value is never below that
    of either alone, and is that of documents where the error over seeds is unknown.
    """
    # False positives between equal systems in % (6,000 simulated comparisons on 57 documents), by
    # the variance over documents relative to that over seeds:
    #                        0    1/2     1     2     4
    # 5 seeds, larger p    5.2   7.5   7.9   8.2   7.5
    #          this        5.1   5.5   4.8   4.9   4.7
    # 10 seeds, larger p   5.6   8.9  10.9   9.3   7.6
    #           this       5.1   4.5   4.6   4.4   4.4
    variances = documents.error**2, seeds.error**2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = variances[0] ** 2 / documents.freedom + variances[1] ** 2 / seeds.freedom
        freedom = np.where(terms > 0, sum(variances) ** 2 / terms, 1.0)
        p = Spread(documents.mean, np.sqrt(sum(variances)), freedom).p
    return np.fmax(p, np.fmax(documents.p, seeds.p))


def wilson(right: float, count: int) -> tuple[float, float]:
    """95% interval of a share (Wilson, 1927), valid near 0 and 1, where the normal one is not."""
    z = 1.959963984540054
    share, inverse = right / count, z**2 / count
    centre = share + inverse / 2
    half = z * np.sqrt(share * (1 - share) / count + inverse / (4 * count))
    return float((centre - half) / (1 + inverse)), float((centre + half) / (1 + inverse))


def over_seeds(values) -> tuple[float, float, float] | None:
    """Mean of three or more seeds with its 95% t-interval; None for fewer."""
    values = np.asarray(values, np.float64)
    if len(values) < FEWEST_SEEDS:
        return None
    half = _t(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


class Corrected(NamedTuple):
    p: float
    comparisons: int  # factor on the p-value


def holm(values: Sequence[float]) -> list[Corrected]:
    """p-values corrected for multiple comparisons (Holm, 1979), which multiplies the smallest by
    their number, the next by one less, and so on."""
    order = np.argsort(values, kind="stable")
    corrected, largest = [Corrected(1.0, 1)] * len(values), 0.0
    for rank, index in enumerate(order):
        factor = len(values) - rank
        largest = max(largest, min(1.0, factor * values[index]))
        corrected[index] = Corrected(largest, factor)
    return corrected


def _p(mean, error, freedom):
    """Two-sided p-value against a mean of zero; 0 or 1 for an error of zero, nan for nan."""
    from scipy.special import stdtr

    error = np.asarray(error, np.float64)
    p = 2 * stdtr(freedom, -np.abs(mean) / np.where(error > 0, error, 1))
    certain = np.where(np.isnan(error), np.nan, np.where(np.equal(mean, 0), 1.0, 0.0))
    return np.where(error > 0, p, certain)


def _t(freedom, level: float = 0.05):
    """Half-width of an interval in standard errors, by default at 95%."""
    from scipy.special import stdtrit  # slow to import, and training imports this module

    return stdtrit(freedom, 1 - level / 2)


FEWEST_TARGETS = 200  # per mean over places: with fewer, a few hard tokens make a spike


def smooth(places: np.ndarray, windows: int = FEWEST_TARGETS) -> tuple[np.ndarray, np.ndarray]:
    """Average neighbouring places over a sixth of an octave, or more where these places hold fewer
    than 200 targets over all windows."""
    at_least = -(-FEWEST_TARGETS // windows)
    octaves = np.arange(0, np.log2(len(places)) + 1 / 6, 1 / 6)
    edges = np.unique(np.round(2**octaves).astype(int))
    edges = np.append(edges[edges <= len(places)], len(places) + 1)
    pairs = _joined([(a, b) for a, b in zip(edges, edges[1:], strict=False) if b > a], at_least)
    if len(pairs) > 1 and pairs[-1][1] - pairs[-1][0] < pairs[-2][1] - pairs[-2][0]:
        pairs[-2:] = [(pairs[-2][0], pairs[-1][1])]  # a shorter remainder joins the last one
    x = np.array([(a + b - 1) / 2 for a, b in pairs])
    return x, np.array([places[a - 1 : b - 1].mean() for a, b in pairs])


def _joined(pairs: Sequence[tuple[int, int]], at_least: int) -> list[tuple[int, int]]:
    """Merge neighbouring ranges until each holds enough places; a short rest joins the last."""
    merged: list[tuple[int, int]] = []
    for begin, end in pairs:
        if merged and merged[-1][1] - merged[-1][0] < at_least:
            begin = merged.pop()[0]
        merged.append((begin, end))
    if len(merged) > 1 and merged[-1][1] - merged[-1][0] < at_least:
        merged[-2:] = [(merged[-2][0], merged[-1][1])]
    return merged
