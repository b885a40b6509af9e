"""Intervals over documents and seeds hold the level they state; the simulation is the test."""

import numpy as np
import pytest
import scipy.stats

from posenc_jax.evaluation import statistics

pytestmark = pytest.mark.sampled

DRAWS = 2_000  # of a level of 5%: its standard error is 0.5%


def equally_long(rng, documents):
    return np.full(documents, 200.0)


def one_or_two_windows(rng, documents):
    return 128.0 * rng.integers(1, 3, documents)


def lognormal(rng, documents):
    return np.ceil(200 * np.exp(rng.normal(size=documents)))


def half_in_one(rng, documents):
    counts = np.full(documents, 200.0)
    counts[0] = counts[1:].sum()
    return counts


def normal(rng, documents):
    return rng.normal(0, 0.3, documents)


def heavy(rng, documents):
    return 0.2 * rng.standard_t(3, documents)


def differences(rng, counts, effect):
    """Sums over tokens of standard deviation 1 in documents that favour one side or the other."""
    return rng.normal(0, np.sqrt(counts)) + counts * effect(rng, len(counts))


@pytest.mark.parametrize("documents", [3, 4, 8, 10, 20, 40])
@pytest.mark.parametrize(
    ("lengths", "effect"),
    [
        (equally_long, normal),
        (one_or_two_windows, normal),
        (one_or_two_windows, heavy),
        (lognormal, normal),
        (half_in_one, normal),
    ],
)
def test_equal_systems_differ_as_often_as_stated(lengths, effect, documents):
    """The percentile bootstrap did so in 25% at 3 documents, t with D - 1 degrees of freedom in
    32% at 40 where one document holds half of the tokens."""
    rng = np.random.default_rng(documents)
    outside = 0
    for _ in range(DRAWS):
        counts = lengths(rng, documents)
        found = statistics.paired(differences(rng, counts, effect), np.zeros(documents), counts)
        outside += found.excludes_zero
        assert not (found.clear and documents < 10)
    assert 0.03 <= outside / DRAWS <= 0.07


def test_nothing_is_clear_below_ten_documents_however_large():
    for documents in range(1, 13):
        counts = np.full(documents, 100.0)
        better = -counts * (1 + 0.01 * np.random.default_rng(0).random(documents))
        found = statistics.paired(better, np.zeros(documents), counts)
        assert found.excludes_zero == (documents > 1) and found.units == (documents, None)
        assert found.clear == (documents >= 10)
        stretches = statistics.paired(better, np.zeros(documents), counts, "stretch")
        assert stretches[:3] == found[:3] and not stretches.clear


@pytest.mark.parametrize("documents", [4, 12, 40])
def test_the_interval_of_a_gain_covers_it_as_often_as_stated(documents):
    """The null mixes two curves over other targets, a quarter of one and three of the other."""
    rng = np.random.default_rng(documents)
    inside = 0
    for _ in range(DRAWS):
        windows = lognormal(rng, documents)
        shared = normal(rng, documents)  # a hard document is hard for all three
        terms = [
            (weight, counts * (level + shared) + differences(rng, counts, normal), counts)
            for weight, level, counts in (
                (0.25, 2.5, 8 * windows),
                (0.75, 2.3, windows),
                (-1.0, 2.2, np.ceil(8 * windows * rng.uniform(0.8, 1.0, documents))),
            )
        ]
        found = statistics.combined(terms)
        inside += found.low <= 0.25 * 2.5 + 0.75 * 2.3 - 2.2 <= found.high
    assert 0.93 <= inside / DRAWS <= 0.97


def test_equally_long_documents_give_the_interval_of_students_t():
    counts = np.full(7, 50.0)
    means = np.random.default_rng(3).normal(size=7)
    found = statistics.paired(counts * (means + 2), counts * 2, counts)
    expected = scipy.stats.ttest_1samp(means, 0).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-12)


def test_the_variance_and_its_freedom_are_those_of_the_regression_in_matrices():
    """Means of documents on a constant, weighted by tokens: HC2, and the freedom of its quadratic
    form where only tokens are noisy."""
    rng = np.random.default_rng(4)
    counts = lognormal(rng, 9)
    sums = differences(rng, counts, normal)
    root = np.sqrt(counts)
    design, outcome = root[:, None], sums / root
    projection = design @ np.linalg.inv(design.T @ design) @ design.T
    residual = np.eye(9) - projection
    bread = (np.linalg.inv(design.T @ design) @ design.T)[0]
    meat = np.diag(bread**2 / np.diag(residual))
    variance = outcome @ residual @ meat @ residual @ outcome
    values = np.linalg.eigvalsh(residual @ meat @ residual)
    freedom = values.sum() ** 2 / np.sum(values**2)
    half = scipy.stats.t.ppf(0.975, freedom) * np.sqrt(variance)
    found = statistics.paired(sums, np.zeros(9), counts)
    mean = bread @ outcome
    np.testing.assert_allclose(found[:3], [mean, mean - half, mean + half], rtol=1e-9)


def test_a_sum_of_ratios_agrees_with_the_jackknife():
    """With many documents; the jackknife recomputes without each one."""
    rng = np.random.default_rng(5)
    kept = [lognormal(rng, 400) * (rng.random(400) < 0.9) for _ in range(3)]  # some lack one
    hard = rng.normal(2, 0.3, 400)
    terms = [
        (weight, counts * hard + differences(rng, counts, normal), counts)
        for weight, counts in zip((0.25, 0.75, -1.0), kept, strict=True)
    ]

    def value(chosen):
        return sum(w * s[chosen].sum() / c[chosen].sum() for w, s, c in terms)

    everyone = np.arange(400)
    without = np.array([value(everyone != one) for one in everyone])
    error = np.sqrt(399 / 400 * np.sum((without - without.mean()) ** 2))
    found = statistics.combined(terms)
    assert found.mean == pytest.approx(value(everyone), rel=1e-12)
    assert (found.high - found.low) / 2 == pytest.approx(1.97 * error, rel=0.03)
    assert found.high - found.mean == pytest.approx(found.mean - found.low)


def test_terms_over_documents_of_equal_shares_are_one_difference():
    rng = np.random.default_rng(6)
    windows = one_or_two_windows(rng, 11)
    first, second, third = (differences(rng, windows, normal) for _ in range(3))
    one = statistics.combined(
        [(0.25, 8 * first, 8 * windows), (0.75, second, windows), (-1.0, 8 * third, 8 * windows)]
    )
    other = statistics.paired(0.25 * first + 0.75 * second, third, windows)
    numbers = one[:3] + one[-1:], other[:3] + other[-1:]
    np.testing.assert_allclose(*numbers, rtol=1e-12)
    assert one.units == other.units


def test_the_same_losses_differ_by_exactly_nothing():
    counts = np.arange(1.0, 13.0)
    found = statistics.paired(counts**2, counts**2, counts)
    assert found == (0.0, 0.0, 0.0, (12, None), 1.0) and not found.clear
    assert statistics.combined([(1.0, counts**2, counts), (-1.0, counts**2, counts)]) == found


def test_a_ratio_of_a_single_document_has_no_interval():
    one, many = np.array([100.0, 0, 0]), np.array([100.0, 50, 50])
    for found in (
        statistics.paired(np.array([-50.0]), np.zeros(1), np.array([100.0])),
        statistics.combined([(1.0, one * 2, one), (-1.0, many * 2.5, many)]),
    ):
        assert found[:3] == (-0.5, -np.inf, np.inf) and not found.clear


def test_three_seeds_have_an_interval_and_two_have_none():
    assert statistics.over_seeds([1.0, 2.0]) is None
    mean, low, high = statistics.over_seeds([1.0, 2.0, 3.0])
    np.testing.assert_allclose([mean, low, high], [2.0, 2 - 2.484, 2 + 2.484], atol=1e-3)


def test_p_and_interval_say_the_same():
    rng = np.random.default_rng(8)
    for shift in np.linspace(0, 1, 21):
        counts = lognormal(rng, 12)
        one = statistics.paired(differences(rng, counts, normal) - shift * counts, 0, counts)
        assert (one.p < 0.05) == one.excludes_zero
        seeds = rng.normal(shift, 1, 5)
        _, low, high = statistics.over_seeds(seeds)
        (p,) = statistics.of_seeds(seeds[None], np.ones((1, len(seeds)), bool)).p
        assert (p < 0.05) == (low > 0 or high < 0)
        expected = scipy.stats.ttest_1samp(seeds, 0).pvalue
        assert p == pytest.approx(expected)


def test_p_of_seeds_is_of_those_that_are_there():
    rows = np.array([[0.0, 0, 0, 9], [1, 1, 1, 1], [0.3, 0.1, 9, 0.2], [1, 2, 9, 9]])
    present = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 0, 0]], bool)
    p = statistics.of_seeds(rows, present).p
    expected = scipy.stats.ttest_1samp([0.3, 0.1, 0.2], 0).pvalue
    assert p[:3].tolist() == [1, 0, pytest.approx(expected)] and np.isnan(p[3])


def test_p_over_documents_is_that_of_each_pair():
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 5, 40).astype(float)
    rows = rng.normal(size=(5, 40)) * counts
    expected = [statistics.paired(row, 0 * row, counts).p for row in rows]
    assert statistics.over_documents(rows, counts).p == pytest.approx(expected)
    assert statistics.over_documents(rows, np.eye(40)[0]).p.tolist() == [1] * 5


def drawn(rng, comparisons: int, seeds: int, of_documents: float, documents: int = 57):
    """Differences of equal systems [N, S, D], noise of seeds, of documents and of both."""
    shapes = {(comparisons, seeds, 1): 1.0, (comparisons, 1, documents): of_documents}
    shapes[comparisons, seeds, documents] = 2.0
    return sum(scale * rng.normal(size=shape) for shape, scale in shapes.items())


def both(differences, size):
    """Statistics of differences [N, S, D] over documents and over seeds."""
    present = np.ones(differences.shape[:2], bool)
    over = statistics.over_documents(differences.mean(axis=1) * size, size)
    return over, statistics.of_seeds(differences.mean(axis=2), present)


@pytest.mark.parametrize("seeds", [5, 10])
def test_chance_of_documents_and_of_seeds_together_keeps_its_level(seeds):
    """The larger of the two p does not: either sees one source alone."""
    rng, size = np.random.default_rng(11), np.full(57, 140.0)
    documents, of_seeds = both(drawn(rng, 4_000, seeds, (57 / seeds) ** 0.5), size)
    wrong = np.mean(statistics.p_of_both(documents, of_seeds) <= 0.05)
    assert 0.035 < wrong < 0.06
    assert np.mean(np.fmax(documents.p, of_seeds.p) <= 0.05) > wrong + 0.02


def test_p_of_both_is_never_below_that_of_either():
    rng, size = np.random.default_rng(12), np.full(57, 140.0)
    documents, of_seeds = both(drawn(rng, 500, 3, 0.5) + 0.5, size)
    found = statistics.p_of_both(documents, of_seeds)
    assert np.all(found >= documents.p) and np.all(found >= of_seeds.p)
    unknown = of_seeds._replace(error=np.full(500, np.nan))
    assert np.array_equal(statistics.p_of_both(documents, unknown), documents.p)
    alone = documents._replace(error=np.full(500, np.inf), freedom=1.0)
    assert statistics.p_of_both(alone, of_seeds).tolist() == [1] * 500


def test_wilson_is_sound_at_the_ends():
    assert statistics.wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert statistics.wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert statistics.wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_holms_correction_is_that_of_his_steps():
    values = [0.01, 0.04, 0.03, 0.005]
    found = statistics.holm(values)
    assert [one.p for one in found] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [one.comparisons for one in found] == [3, 1, 2, 4]
    assert statistics.holm([0.4, 0.9]) == [(0.8, 2), (0.9, 1)]
    assert statistics.holm([]) == [] and statistics.holm([0.02]) == [(0.02, 1)]


def test_means_over_places_hold_enough_targets_and_all_places_once():
    noise = np.random.default_rng(0).normal(size=1024)
    for windows in (1, 8, 40, 1000):
        x, y = statistics.smooth(noise, windows)
        widths = []
        for centre in x:
            widths.append(2 * (centre - 0.5 - sum(widths)))
        assert sum(widths) == 1024
        assert min(widths) * windows >= statistics.FEWEST_TARGETS
        assert np.average(y, weights=widths) == pytest.approx(noise.mean())
    assert statistics.smooth(noise)[0][0] == 1  # of many windows the first place stays
    x, y = statistics.smooth(np.array([1.0, 2.0, 6.0]), 2)  # too short for a mean: one place
    assert (list(x), list(y)) == ([2.0], [3.0])
