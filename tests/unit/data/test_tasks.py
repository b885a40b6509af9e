"""Tasks: exact length, answered by what their gap points at, the same test for every run."""

import re

import numpy as np
import pytest
from configured import run_of
from solving import solve

from configs import rope
from posenc_jax import registry
from posenc_jax.config import check
from posenc_jax.data import corpora, tasks

L, FAR = 128, 4.0
PROBES = [name for name in registry.tasks() if issubclass(tasks.find(name), tasks.Probe)]


def task(name):
    config = rope.get_config()
    config.train_length = L
    config.data.update(source="synthetic", task=name, far=FAR)
    return run_of(config).data.source.drawn


def drawn(name, split="valid", count=24, seed=3):
    return list(task(name).draw(split, count, seed))


@pytest.mark.parametrize("split", ["train", "valid", "choose"])
@pytest.mark.parametrize("name", PROBES)
def test_documents_fill_a_row_or_the_longest_window_and_answer_within(name, split):
    for text, answers, gaps in drawn(name, split):
        assert len(text) == L * (1 if split != "valid" else FAR) + 1
        assert text.dtype == np.uint8 and answers.any()
        place = np.flatnonzero(answers)
        # The question is the token before its answer, and what answers it is in the document.
        assert np.all(gaps[place] >= 1) and np.all(place - 1 - gaps[place] >= 0)
        assert not gaps[~answers].any()


@pytest.mark.parametrize("name", PROBES)
def test_tests_are_the_same_for_every_seed_and_no_training(name):
    def texts(split, seed):
        return [document.text.tobytes() for document in drawn(name, split, 8, seed)]

    assert texts("valid", 1) == texts("valid", 2)
    assert texts("train", 1) != texts("train", 2) and texts("train", 1) == texts("train", 1)
    assert not set(texts("train", 1)) & set(texts("choose", 1))


@pytest.mark.parametrize("name", PROBES)
def test_the_last_tokens_ask(name):
    """What is scored at every length are the last 16 targets."""
    for _, answers, _ in drawn(name):
        assert answers[-16:].any()


def solved(name, seen):
    """The answer at the end of `seen`, by a program that knows the task; None: it is not there."""
    text = seen.tobytes().decode("latin-1")
    if name in ("needle", "passkey", "code"):
        mark, ask = {
            "needle": (r"# (\w+) is (\d*)", r"# (\w+) is (\d*)$"),
            "passkey": (r"The key is (\d{5})", r"What is it\? (\d*)$"),
            "code": (r"\nx(\d) = (\d)\n", r"print\(x(\d)\)  # $"),
        }[name]
        asked = re.search(ask, text)
        before = re.findall(mark, text[: asked.start()])
        if name == "passkey":
            return before[-1][len(asked[1])] if before else None
        values = [value for key, value in before if key == asked[1]]
        if name == "code":
            return values[-1] if values else None
        return values[-1][len(asked[2])] if values else None
    if name == "delayed_repeat":
        first, _, second = text.partition("|")
        word = first.strip(".")
        at = len(second) - (8 - len(word))  # its first letters may not be seen any more
        return word[at] if 0 <= at < len(word) else None
    if name == "who":
        tokens = seen.tolist()
        who, verb = tokens[-2:]
        for i in range(len(tokens) - 3):
            sentence = tokens[i] >= 128 and tokens[i + 1] == verb and tokens[i + 2] >= 128
            if sentence:
                return chr(tokens[i] if who == 97 else tokens[i + 2])
        return None

    answer = solve(np.append(seen, 0))[-1]
    return chr(answer) if answer >= 0 else None


@pytest.mark.parametrize("name", PROBES)
def test_a_program_that_knows_the_task_answers_all_that_it_sees_and_nothing_else(name):
    """Ceiling and chance: within a context that holds the answer all are right; where it does not,
    a guess."""
    known = 0
    for text, answers, gaps in drawn(name, count=40):
        for place in np.flatnonzero(answers[-16:]) + len(text) - 16:
            assert solved(name, text[:place]) == chr(text[place])
            seen = text[place - 1 - gaps[place] : place]  # what answers is its first token
            assert solved(name, seen) == chr(text[place])
            known += 1
    assert known >= 40


def test_the_ceiling_is_what_is_known_and_a_guess_at_the_rest():
    assert tasks.ceiling(0.25, np.array([1, 2, 3, 4]), 2) == pytest.approx(0.5 + 0.5 * 0.25)


@pytest.mark.parametrize("name", PROBES)
def test_one_that_guesses_is_right_by_chance(name):
    """Of a kind: the values that stand where answers do, drawn evenly."""
    rng = np.random.default_rng(0)
    answers = [t[a][-1] for t, a, _ in drawn(name, count=600)]
    kinds = np.unique([t[a][-1] for t, a, _ in drawn(name, "train", count=600)])
    right = np.mean(rng.choice(kinds, len(answers)) == answers)
    assert right == pytest.approx(task(name).chance, abs=3 * (0.25 / 600) ** 0.5)
    assert len(kinds) == round(1 / task(name).chance)


def test_twins_differ_in_order_alone():
    documents = drawn("who", count=40)
    for one, other in zip(documents[::2], documents[1::2], strict=True):
        assert sorted(one.text.tolist()) != [] and (one.text != other.text).any()
        np.testing.assert_array_equal(one.answers, other.answers)
        same = one.text[~one.answers]
        nouns = same >= 128
        np.testing.assert_array_equal(same[~nouns], other.text[~one.answers][~nouns])
        assert sorted(same[nouns].tolist()) == sorted(other.text[~one.answers][nouns].tolist())
        assert (one.text[one.answers] != other.text[other.answers]).all()


def test_keys_of_the_test_are_none_of_training():
    from posenc_jax.data.tasks.needle import WORDS

    assert not set(WORDS[True]) & set(WORDS[False])


def test_nouns_of_a_sentence_of_the_test_stand_in_none_of_training():
    from posenc_jax.data.tasks import who

    def pairs(split):
        found = set()
        for text, _, _ in drawn("who", split, 400):
            for one, verb, other in zip(text, text[1:], text[2:], strict=False):
                if min(one, other) >= who.NOUN and who.VERB <= verb < who.VERB + who.VERBS:
                    found.add(frozenset((int(one), int(other))))
        return found

    assert pairs("valid") and pairs("train") and not pairs("valid") & pairs("train")


@pytest.mark.parametrize(("length", "needles"), [(34, 1), (102, 5), (128, 6), (289, 16)])
def test_as_many_needles_as_fit_lie_apart(length, needles):
    made = tasks.make("needle", length, far=2.0, needles=needles, valid_fraction=0.1)
    for drawn in made.draw("train", 8, 0):
        text = drawn.text.tobytes().decode("latin-1")
        assert len(re.findall(r"# [a-z]{5} is \d{4}", text)) == needles + 1


def prepared(tmp_path, seed=0, **data):
    config = rope.get_config()
    config.train_length = 32
    config.data.update(source="synthetic", task="variables", documents=50, cache=str(tmp_path))
    config.data.update(data)
    assert check.without_building(config).problems == []
    return corpora.prepare(run_of(config).data.source, seed, quiet=True)


def test_a_corpus_keeps_gaps_and_chance_and_has_tests_of_their_own(tmp_path):
    made = prepared(tmp_path, choose_fraction=0.1)
    assert made.valid.chance == pytest.approx(1 / 6)
    counts = {name: len(getattr(made, name).lengths) for name in corpora.SPLITS}
    assert counts == {"train": 50, "valid": tasks.TESTS, "choose": tasks.CHOICES}
    assert set(made.train.lengths) == {33} and set(made.valid.lengths) == {8 * 32 + 1}
    assert np.all((made.valid.gaps > 0) == made.valid.answers)
    other = prepared(tmp_path, seed=1)
    np.testing.assert_array_equal(made.valid.tokens, other.valid.tokens)
    assert made.fingerprint != other.fingerprint


def test_another_law_or_length_is_another_corpus(tmp_path):
    chosen = ({}, {"gaps": "log"}, {"far": 2.0})
    assert len({prepared(tmp_path, **fields).folder for fields in chosen}) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"task": "needle", "gaps": "log"},
            "data.gaps = 'log' has no effect with data.task=needle",
        ),
        ({"task": "copy", "far": 2.0}, "data.far = 2.0 has no effect with data.task=copy"),
        ({"task": "who", "document_length": 9}, "data.document_length = 9 has no effect with data"),
        (
            {"task": "variables", "gaps": "wide"},
            "data.gaps must be one of 'within', 'log'",
        ),
        ({"task": "variabels"}, "data.task must be one of"),
        ({"source": "stdlib", "answers_only": True}, "data.answers_only has no effect"),
    ],
)
def test_a_field_without_effect_is_refused(fields, message):
    config = rope.get_config()
    config.data.update({"source": "synthetic"} | fields)
    problems = check.without_building(config).problems
    assert any(message in line for line in problems), problems
