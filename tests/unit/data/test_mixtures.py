"""Mixtures: exact shares, determined by seed and step, with one split per text."""

import numpy as np
import pytest
from solving import solve

from configs import rope
from posenc_jax import lineage, validation
from posenc_jax.data import batches, mixtures
from posenc_jax.errors import ConfigError

L = 32


def config(tmp_path, mixture="text:0.7,variables:0.3", **fields):
    config = rope.get_config()
    config.update(train_length=L, batch_size=10)
    config.data.update(mixture=mixture, path=f"{tmp_path}/*.txt", documents=40, cache=str(tmp_path))
    config.data.update(fields)
    return config


@pytest.fixture
def texts(tmp_path):
    for i in range(12):
        letters = np.random.default_rng(i).choice(list("abc\n"), 500)
        (tmp_path / f"{i}.txt").write_text("".join(letters))
    return tmp_path


def prepared(texts, seed=0, **fields):
    chosen = config(texts, **fields)
    chosen.seed = seed
    assert validation.validate(chosen) == []
    chosen = lineage.resolved(chosen)
    corpus = mixtures.prepare(chosen.data, seed, L, quiet=True)
    return corpus, mixtures.batches(corpus, chosen)


def is_task(rows):
    """Return per row whether it belongs to the task, which uses other bytes than the text."""
    return np.isin(rows.inputs, np.frombuffer(b"abc\n", np.uint8)).mean(axis=1) < 0.5


def test_shares_are_exact_over_a_thousand_rows(texts):
    _, rows = prepared(texts)
    task_rows = np.concatenate([is_task(rows.batch(step)) for step in range(100)])
    assert task_rows.sum() == 300
    assert 0 < task_rows[:100].sum() < 60  # spread over all steps


def test_batches_depend_on_seed_and_step_only(texts):
    corpus, rows = prepared(texts)
    again, same = prepared(texts)
    assert corpus.fingerprint == again.fingerprint
    for step in (0, 7, 101):
        for first, second in zip(rows.batch(step), same.batch(step), strict=True):
            np.testing.assert_array_equal(first, second)
    assert (rows.batch(3).inputs != prepared(texts, seed=1)[1].batch(3).inputs).any()


def test_processes_read_their_rows_of_the_same_batch(texts):
    _, rows = prepared(texts)
    whole = rows.batch(5)
    for half in (slice(0, 5), slice(5, 10)):
        np.testing.assert_array_equal(rows.batch(5, half).inputs, whole.inputs[half])


def test_a_mixture_keeps_the_row_order_of_each_text(texts):
    """A mixture neither skips nor repeats a row within an epoch."""
    corpus, rows = prepared(texts)
    alone = rows.parts[1]
    expected = alone.at(range(30)).inputs
    batches_read = map(rows.batch, range(10))
    read = np.concatenate([batch.inputs[is_task(batch)] for batch in batches_read])
    np.testing.assert_array_equal(read[:30], expected[: len(read)])


def test_text_without_answers_trains_on_all_its_tokens(texts):
    _, rows = prepared(texts, answers_only=True)
    batch = rows.batch(0)
    task = is_task(batch)
    assert np.all(batch.weights[~task] == 1)
    assert 0 < batch.weights[task].mean() < 0.5


def test_held_out_answers_are_solvable_within_their_row(texts):
    """Test documents and their gaps are longer than a training row."""
    corpus, _ = prepared(texts)
    test = corpus.parts["variables"].valid
    answered = batches.held_out(test, length=L, rows=50, within_documents=True, answers_only=True)
    all_targets = batches.held_out(test, length=L, rows=50, within_documents=True)
    for inputs, targets, weights in zip(*answered[:3], strict=True):
        known = solve(np.append(inputs, targets[-1]))[1:]
        np.testing.assert_array_equal(known[weights > 0], targets[weights > 0])
    assert 0 < answered.weights.sum() < all_targets.weights.sum()


def test_rounded_shares_add_up():
    assert batches._rounded([1, 1, 1], 1000).tolist() == [334, 333, 333]
    assert batches._rounded([0.9999, 0.0001], 1000).tolist() == [999, 1]


@pytest.mark.parametrize(
    ("mixture", "message"),
    [
        (
            "stdlib:0.5,variabels:0.5",
            "unknown source or task 'variabels'; did you mean 'variables'?",
        ),
        ("stdlib:0.5,variables:0", "the share of variables must be a finite number above 0"),
        ("stdlib:0.5,variables:-1", "must be a finite number above 0"),
        ("stdlib:0.5,variables:much", "must be a finite number above 0"),
        ("stdlib:0.5,variables", "must be a finite number above 0"),
        ("stdlib:0.5,stdlib:0.5", "stands in it twice"),
        ("stdlib:1", "two texts or more"),
    ],
)
def test_invalid_mixtures_are_refused(texts, mixture, message):
    problems = validation.validate(config(texts, mixture, path="", documents=None))
    assert len(problems) == 1 and message in problems[0], problems


def test_fields_unused_by_the_mixture_are_refused(texts):
    problems = validation.validate(config(texts, "stdlib:0.5,variables:0.5"))
    assert any(
        "data.path" in line and "no text of data.mixture reads it" in line for line in problems
    )
    problems = validation.validate(
        config(texts, "stdlib:0.5,text:0.5", documents=None, answers_only=True)
    )
    assert any("data.answers_only has no effect" in line for line in problems)
    problems = validation.validate(config(texts, task="who"))
    assert any("data.task = 'who' has no effect beside data.mixture" in line for line in problems)


def test_texts_of_a_mixture_must_hold_out_alike(tmp_path):
    """Tasks hidden in source code hold out single files, not packages."""
    chosen = config(tmp_path, mixture="stdlib:0.7,code:0.3", hold_out="package", path="")
    with pytest.raises(ConfigError, match="code in data.mixture, which holds out single files"):
        mixtures.prepare(lineage.resolved(chosen).data, 0, 64, quiet=True)
