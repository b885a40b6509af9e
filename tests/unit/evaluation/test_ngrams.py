"""n-gram baselines equal a dictionary's counts, on a run's own targets."""

from collections import Counter

import numpy as np
import pytest
from measuring import split

from posenc_jax.data.batches import Batches
from posenc_jax.evaluation import ngrams

ORDER = 4


def naive(asked, counted, vocab):
    """Probabilities of every order, by counting tuples."""
    seen = Counter()
    for gram in counted:
        for k in range(1, len(gram) + 1):
            if min(gram[len(gram) - k :]) >= 0:
                seen["target", tuple(gram[len(gram) - k :])] += 1
                seen["context", tuple(gram[len(gram) - k : -1])] += 1
    found = []
    for gram in asked:
        p, own = 1 / vocab, []
        for k in range(1, len(gram) + 1):
            words = tuple(gram[len(gram) - k :])
            n, total = seen["target", words], seen["context", words[:-1]]
            p = (n + 5 * p) / (total + 5)
            own.append(p)
        found.append(own)
    return np.array(found).T


def text(rng, count, vocab):
    """Grams of few distinct tokens, so that all of them repeat; some reach before the text."""
    drawn = rng.integers(0, vocab, (count, ORDER)) ** 2 // vocab
    drawn[::7, 0] = -1
    drawn[::21, 1] = -1
    return drawn


@pytest.mark.parametrize("vocab", [5, 256, 100_000])
def test_probabilities_are_those_of_a_dictionary(vocab):
    rng = np.random.default_rng(vocab)
    few = rng.integers(0, vocab, 6)  # of a large vocabulary too

    def of(count):
        drawn = text(rng, count, 6)
        return np.where(drawn < 0, -1, few[drawn])

    asked, counted = of(200), of(3_000)
    expected = naive(asked.tolist(), counted.tolist(), vocab)
    chunks = np.array_split(counted, 7)
    np.testing.assert_allclose(ngrams.probabilities(asked, chunks, vocab), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [2, 5])
@pytest.mark.parametrize("within", [True, False])
def test_every_target_of_a_row_is_counted_with_the_tokens_before_it_in_its_row(order, within):
    batches = Batches(split(), length=16, batch_size=4, seed=0, within_documents=within)
    rows = batches.at(range(6))
    found = ngrams.ngrams_of(rows, order).tolist()
    expected = []
    for inputs, targets, weights in zip(rows.inputs, rows.targets, rows.weights, strict=True):
        line = [-1] * order + [inputs[0], *targets]
        for place, weight in enumerate(weights):
            if weight:
                expected.append(line[place + 2 : place + 2 + order])
    assert found == expected and (len(found) < 6 * 16) == within


def test_no_more_than_an_epoch_is_counted():
    batches = Batches(split(), length=16, batch_size=4, seed=0, within_documents=False)
    count = sum(len(part) for part in ngrams.training_ngrams(batches, 10**6, 3))
    assert count == 16 * batches.rows
    assert sum(len(part) for part in ngrams.training_ngrams(batches, 5, 3)) == 5 * 16


def test_n_grams_use_no_tokens_before_a_window():
    tokens = np.arange(10, 30)
    found = ngrams.ngrams_before(tokens, np.array([5, 6]), np.array([4, 0]), 4)
    np.testing.assert_array_equal(found, [[-1, -1, 14, 15], [13, 14, 15, 16]])


def test_rows_of_another_evaluation_stay(tmp_path):
    row = {"evaluation": "a", "order": 2, "last": 4, "token_hash": "t", "tokens": 8}
    row |= {"nll": 1.25, "bpb": None, "counted": 64}
    ngrams.write_yardsticks(tmp_path, [row])
    ngrams.write_yardsticks(tmp_path, [row | {"evaluation": "b", "bpb": 1.5}])
    ngrams.write_yardsticks(tmp_path, [row | {"nll": 1.0}])
    assert ngrams.read_yardsticks(tmp_path) == [
        row | {"evaluation": "b", "bpb": 1.5},
        row | {"nll": 1.0},
    ]
    assert ngrams.read_yardsticks(tmp_path / "none") == []
