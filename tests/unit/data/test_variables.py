"""`variables`: every question is answerable, and each context length has a known ceiling."""

import numpy as np
import pytest
from solving import solve

from posenc_jax.data import sources
from posenc_jax.data.tasks.variables import (
    ASK,
    LAST,
    NAMES,
    NEAREST,
    SET,
    VALUE,
    VALUES,
    Variables,
    settings,
)

pytestmark = pytest.mark.sampled

L, FAR = 64, 8.0
SLOW = pytest.mark.slow
LAWS = ("within", "octaves", "log", "fixed")
KINDS = [(variant, law) for variant in ("latest", "once") for law in LAWS]
KINDS += [("ordered", law) for law in LAWS[:3]]


def task(variant="latest", law="within"):
    return Variables(train_length=L, far=FAR, variant=variant, gaps=law)


def share_within(law, context):
    """Share of test questions whose setting is at most `context` tokens back."""
    if law == "fixed":
        return float(context >= FAR * L - LAST)
    end = 1 + np.minimum(context, FAR * L)
    if law in ("log", "octaves"):
        return np.log(end / NEAREST) / np.log((FAR * L + 1) / NEAREST)
    return (end - NEAREST) / (FAR * L + 1 - NEAREST)


def ceiling(law, context):
    """Accuracy on test questions of a reader of the last `context` tokens."""
    known = share_within(law, context)
    return known + (1 - known) / VALUES


def gaps(tokens):
    """Distance from question to setting for each answer; 0 for other tokens."""
    found, last = np.zeros(len(tokens), np.int64), np.full(NAMES, -1)
    for place, token in enumerate(tokens.tolist()):
        if token >= SET:
            last[(token - SET) // VALUES] = place
        elif ASK <= token < ASK + NAMES and last[token - ASK] >= 0 and place + 1 < len(tokens):
            found[place + 1] = place - last[token - ASK]
    return found


def drawn(variant, law, training, count=60, seed=3):
    return task(variant, law).draw("train" if training else "valid", count, seed)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("variant", "law"), KINDS)
def test_every_question_is_answered_by_earlier_tokens(variant, law, training):
    questions = 0
    for tokens, answers, gaps_ in drawn(variant, law, training):
        assert len(tokens) == task(variant, law).length(training)
        np.testing.assert_array_equal(solve(tokens)[answers], tokens[answers])
        np.testing.assert_array_equal(gaps(tokens)[answers], gaps_[answers])
        assert np.all(gaps_[answers] >= NEAREST) and not gaps_[~answers].any()
        assert np.all((tokens[answers] >= VALUE) & (tokens[answers] < VALUE + VALUES))
        questions += answers.sum()
    assert questions > 60


@pytest.mark.parametrize("law", ["within", "octaves", "log"])
def test_gaps_of_the_last_questions_follow_their_law(law):
    """The Kolmogorov distance to the closed form is below 0.04."""
    documents = drawn("latest", law, False, 600)
    gaps_found = np.sort(np.concatenate([g[-LAST:][a[-LAST:]] for _, a, g in documents]))
    assert len(gaps_found) > 1500
    law_of = share_within(law, gaps_found)
    empirical = np.searchsorted(gaps_found, gaps_found, side="right") / len(gaps_found)
    assert np.abs(law_of - empirical).max() < 0.04


@pytest.mark.parametrize("law", ["within", "log", "fixed"])
@pytest.mark.parametrize("context", [L, 4 * L, *(pytest.param(x * L, marks=SLOW) for x in (2, 8))])
def test_a_reader_of_a_short_context_reaches_the_ceiling(law, context):
    right, count = 0.0, 0
    for tokens, answers, _ in drawn("latest", law, False, 400):
        places = np.flatnonzero(answers)[-3:]
        for place in places[places >= len(tokens) - LAST]:
            # The setting may be at most `context` tokens before the question.
            seen = tokens[max(0, place - 1 - context) : place + 1]
            known = solve(seen)[-1]
            asked_name = seen[-2] - ASK
            before = [t for t in seen[:-2] if t >= SET and (t - SET) // VALUES == asked_name]
            right += float(known == tokens[place]) if before else 1 / VALUES
            count += 1
    assert count > 300
    assert right / count == pytest.approx(ceiling(law, context), abs=0.05)


def test_latest_repeats_names_and_once_does_not():
    for variant, repeats in (("latest", True), ("once", False)):
        more = 0
        for tokens, *_ in drawn(variant, "within", False):
            names = (tokens[tokens >= SET] - SET) // VALUES
            more += len(names) > len(set(names.tolist()))
        assert (more > 50) == repeats


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"variant": "first"}, "data.variant must be one of 'latest', 'once', 'ordered'"),
        ({"gaps": "far"}, "data.gaps must be one of 'within', 'log', 'octaves', 'fixed'"),
        ({"variant": "latest", "older": "1,1"}, "use variant=ordered"),
        ({"older": "-1,1"}, "older must be up to 6 shares"),
        ({"older": "often"}, "older must be up to 6 shares"),
        ({"far": 0.5}, "data.far must be a number from 1 to 4096"),
    ],
)
def test_mistakes_in_a_task_are_refused(fields, message):
    given = {"source": "synthetic", "task": "variables", "variant": "ordered"} | fields
    _, problems = sources.read(given, L)
    assert message in "\n".join(problems)


class TestOrdered:
    """Only order separates the last setting from older ones."""

    def questions(self, training, length=L, far=FAR, count=300, last=False, **fields):
        """Yield the settings and the document of each question."""
        task = Variables(train_length=length, far=far, variant="ordered", gaps="octaves", **fields)
        for document in task.draw("train" if training else "valid", count, 0):
            for place in np.flatnonzero(document.answers):
                if place >= len(document.text) - LAST or not last:
                    question = settings(document.text[: place + 1])
                    assert document.text[place] == question.answer[0]
                    yield question, document

    @pytest.mark.parametrize("training", [True, False])
    def test_older_settings_have_other_values_and_names_are_asked_once(self, training):
        for question, document in self.questions(training, count=40):
            assert len(set(question.answer.tolist())) == len(question.answer)
            assert np.all(np.diff(question.back) > 0)
            names = document.text[(document.text >= ASK) & (document.text < ASK + NAMES)]
            assert len(names) == len(set(names.tolist())) == document.answers.sum()

    @pytest.mark.parametrize(
        ("length", "far", "training"), [(L, FAR, True), (L, FAR, False), (512, 1.0, True)]
    )
    def test_counts_of_older_settings_follow_their_shares(self, length, far, training):
        counts = [len(question.back) - 1 for question, _ in self.questions(training, length, far)]
        shares = np.bincount(counts, minlength=4) / len(counts)
        np.testing.assert_allclose(shares, [0.4, 0.4, 0.1, 0.1], atol=0.04)
        single = self.questions(training, older="0,1", count=40)
        assert {len(question.back) - 1 for question, _ in single} == {1}

    def separations(self, training, **fields):
        found = [question.back for question, _ in self.questions(training, **fields)]
        return [back[1] - back[0] for back in found if len(back) > 1]

    def test_training_and_test_cover_every_separation(self):
        for training, longest in ((True, L), (False, FAR * L)):
            separations = self.separations(training)
            octaves = np.histogram(np.log2(separations), np.arange(int(np.log2(longest)) + 1))[0]
            assert max(separations) <= longest and np.all(octaves > 0.015 * len(separations))
            # Separations are log-uniform except where a document is too short.
            assert octaves[0] < 2.5 * octaves[len(octaves) // 2]
        assert max(self.separations(False, separation=0.125)) <= L

    def test_the_last_test_questions_cover_every_distance(self):
        gaps_ = [question.back[0] for question, _ in self.questions(False, last=True)]
        octaves = np.histogram(np.log2(gaps_), np.arange(2, 10))[0] / len(gaps_)
        assert np.all(octaves > 0.07) and np.all(octaves < 0.22)

    def test_fewer_names_are_a_smaller_load(self):
        for few in (4, 24):
            drawn = Variables(train_length=L, far=FAR, variant="ordered", names=few)
            tokens = np.concatenate([one.text for one in drawn.draw("valid", 40, 0)])
            assert len(np.unique((tokens[tokens >= SET] - SET) // VALUES)) == few
