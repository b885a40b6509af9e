"""`variables`: every question can be answered, and what a context can answer is known before."""

import numpy as np
import pytest

from posenc_jax.data.tasks.variables import (
    ASK,
    LAST,
    NEAREST,
    SET,
    VALUE,
    VALUES,
    Variables,
    gaps,
    solve,
)

pytestmark = pytest.mark.sampled

L, FAR = 64, 8.0
SLOW = pytest.mark.slow
KINDS = [(variant, law) for variant in ("latest", "once") for law in ("within", "log", "fixed")]


def task(variant="latest", law="within"):
    return Variables(L, FAR, variant, law)


def drawn(variant, law, training, count=60, seed=3):
    return task(variant, law).documents("train" if training else "valid", count, seed)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("variant", "law"), KINDS)
def test_every_question_is_answered_by_what_stands_before_it(variant, law, training):
    asked = 0
    for tokens, answers, gaps_ in drawn(variant, law, training):
        assert len(tokens) == task(variant, law).length(training)
        np.testing.assert_array_equal(solve(tokens)[answers], tokens[answers])
        np.testing.assert_array_equal(gaps(tokens)[answers], gaps_[answers])
        assert np.all(gaps_[answers] >= NEAREST) and not gaps_[~answers].any()
        assert np.all((tokens[answers] >= VALUE) & (tokens[answers] < VALUE + VALUES))
        asked += answers.sum()
    assert asked > 60


@pytest.mark.parametrize(("variant", "law"), KINDS)
def test_documents_are_functions_of_seed_and_number(variant, law):
    one, same, other = (
        [tokens.tobytes() for tokens, *_ in drawn(variant, law, True, 5, seed)]
        for seed in (1, 1, 2)
    )
    assert one == same and not set(one) & set(other) and len(set(one)) == 5
    test, again = (
        [tokens.tobytes() for tokens, *_ in drawn(variant, law, False, 5, seed)] for seed in (1, 2)
    )
    assert not set(one) & set(test) and test == again  # every run is asked the same


@pytest.mark.parametrize("law", ["within", "log"])
def test_gaps_of_the_last_questions_follow_their_law(law):
    """Kolmogorov's distance to the closed form."""
    found = []
    for _, answers, gaps_ in drawn("latest", law, False, 600):
        found.extend(gaps_[-LAST:][answers[-LAST:]].tolist())
    assert len(found) > 1500
    found = np.sort(found)
    law_of = np.array([task("latest", law).share_within(gap) for gap in found])
    empirical = np.searchsorted(found, found, side="right") / len(found)
    assert np.abs(law_of - empirical).max() < 0.04


@pytest.mark.parametrize("law", ["within", "log", "fixed"])
@pytest.mark.parametrize("context", [L, 4 * L, *(pytest.param(x * L, marks=SLOW) for x in (2, 8))])
def test_a_reader_of_a_short_context_reaches_the_ceiling_and_no_more(law, context):
    right, count = 0.0, 0
    for tokens, answers, _ in drawn("latest", law, False, 400):
        for place in np.flatnonzero(answers)[-3:]:
            if place < len(tokens) - LAST:
                continue
            # The setting may stand at most `context` tokens before the question.
            seen = tokens[max(0, place - 1 - context) : place + 1]
            known = solve(seen)[-1]
            asked_name = seen[-2] - ASK
            before = [t for t in seen[:-2] if t >= SET and (t - SET) // VALUES == asked_name]
            right += float(known == tokens[place]) if before else 1 / VALUES
            count += 1
    assert count > 300
    assert right / count == pytest.approx(task("latest", law).ceiling(context), abs=0.05)


def test_the_ceilings_are_those_that_are_published():
    found = [task("latest", "log").ceiling(64 * n) for n in (1, 2, 4, 8)]
    np.testing.assert_allclose(found, [0.654, 0.773, 0.889, 1.0], atol=0.01)
    found = [task("latest", "within").ceiling(64 * n) for n in (1, 2, 4, 8)]
    np.testing.assert_allclose(found, [0.272, 0.380, 0.595, 1.0], atol=0.02)


def test_order_matters_in_latest_and_not_in_once():
    for variant, repeats in (("latest", True), ("once", False)):
        more = 0
        for tokens, *_ in drawn(variant, "within", False):
            names = (tokens[tokens >= SET] - SET) // VALUES
            more += len(names) > len(set(names.tolist()))
        assert (more > 50) == repeats


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((L, 8.0, "first", "within"), "unknown variant 'first'; have: latest, once"),
        ((L, 8.0, "once", "far"), "unknown law of gaps 'far'; have: within, log, fixed"),
        ((L, 0.5, "once", "log"), "far at least 1"),
    ],
)
def test_what_is_no_task_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Variables(*fields)
