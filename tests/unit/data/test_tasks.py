"""Tasks: exact length, answers at their gap, and the same test for every run."""

import re

import numpy as np
import pytest
from configured import problems_of
from solving import solve

from configs import rope
from posenc_jax import registry
from posenc_jax.config import load
from posenc_jax.data import corpora, tasks
from posenc_jax.data.prepare import prepare
from posenc_jax.data.tasks.needle import WORDS

L, FAR = 128, 4.0
PROBES = [name for name in registry.tasks() if issubclass(tasks.find(name), tasks.Probe)]


def source_of(name, length=L, **data):
    config = rope.get_config()
    config.train_length = length
    config.data.update(source="synthetic", task=name, **data)
    assert problems_of(config) == []
    return load(config).data.source


def task(name):
    return source_of(name, far=FAR).drawn


def drawn(name, split="valid", count=24, seed=3):
    return list(task(name).draw(split, count, seed))


@pytest.mark.parametrize("split", ["train", "valid", "choose"])
@pytest.mark.parametrize("name", PROBES)
def test_documents_fill_a_row_or_the_longest_window_and_answer_within(name, split):
    for text, answers, gaps in drawn(name, split):
        assert len(text) == L * (1 if split != "valid" else FAR) + 1
        assert text.dtype == np.uint8 and answers.any()
        place = np.flatnonzero(answers)
        # The question is the token before its answer; its source lies in the document.
        assert np.all(gaps[place] >= 1) and np.all(place - 1 - gaps[place] >= 0)
        assert not gaps[~answers].any()
        if split == "valid":  # the last 16 targets are scored at every length
            assert answers[-16:].any()


@pytest.mark.parametrize("name", PROBES)
def test_tests_are_the_same_for_every_seed_and_no_training(name):
    def texts(split, seed):
        return [document.text.tobytes() for document in drawn(name, split, 8, seed)]

    assert texts("valid", 1) == texts("valid", 2)
    train, other = texts("train", 1), texts("train", 2)
    assert train == texts("train", 1) and not set(train) & set(other) and len(set(train)) == 8
    assert not set(train) & set(texts("choose", 1)) and not set(train) & set(texts("valid", 1))


@pytest.mark.parametrize("name", ["copy", "mqar"])
def test_progress_ends_at_the_size_of_a_source(name):
    source = source_of(name, documents=40)
    assert sum(document.size for document in source.documents(0)) == source.size


def solved(name, seen):
    """Solve the task by program; return the answer at the end of `seen`, or None if unknown."""
    text = seen.tobytes().decode("latin-1")
    if name in ("needle", "passkey"):
        mark, ask = {
            "needle": (r"# (\w+) is (\d*)", r"# (\w+) is (\d*)$"),
            "passkey": (r"The key is (\d{5})", r"What is it\? (\d*)$"),
        }[name]
        question = re.search(ask, text)
        before = re.findall(mark, text[: question.start()])
        if name == "passkey":
            return before[-1][len(question[1])] if before else None
        values = [value for key, value in before if key == question[1]]
        return values[-1][len(question[2])] if values else None
    if name == "count":
        return chr(48 + seen[:-1].tolist().count(112 + seen[-1] - 65))
    if name == "mqar":
        before = np.flatnonzero(seen[:-1] == seen[-1])
        return chr(seen[before[0] + 1]) if len(before) else None

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
            asked, seen = text[place - 1], text[place - 1 - gaps[place] : place]
            source = {"needle": 10, "passkey": 84, "mqar": asked, "count": 47 + asked}.get(name)
            assert source in (None, seen[0])  # the gap is that to the source of the answer
            assert solved(name, seen) == chr(text[place])
            known += 1
    assert known >= 40


def test_the_ceiling_is_known_answers_plus_chance():
    assert tasks.ceiling(0.25, np.array([1, 2, 3, 4]), 2) == pytest.approx(0.5 + 0.5 * 0.25)


@pytest.mark.parametrize("name", PROBES)
def test_guesses_have_the_accuracy_of_chance(name):
    """Guesses are drawn evenly from the values that occur as answers."""
    rng = np.random.default_rng(0)
    answers = [t[a][-1] for t, a, _ in drawn(name, count=600)]
    kinds = np.unique([t[a][-1] for t, a, _ in drawn(name, "train", count=600)])
    right = np.mean(rng.choice(kinds, len(answers)) == answers)
    assert right == pytest.approx(task(name).chance, abs=3 * (0.25 / 600) ** 0.5)
    assert len(kinds) == round(1 / task(name).chance)


def test_needle_words_of_training_and_test_are_disjoint():
    assert not set(WORDS[True]) & set(WORDS[False])


@pytest.mark.parametrize("split", ["train", "valid"])
def test_recall_has_the_same_load_and_larger_distances(split):
    found = drawn("mqar", split, 200)
    for text, answers, _ in found:
        keys = text[(text >= 64) & (text < 128)]
        assert answers.sum() == 8 and sorted(np.bincount(keys)[64:])[-8:] == [2] * 8
    last = np.array([gaps[-1] for _, _, gaps in found])
    longest = len(found[0].text)
    counts = np.histogram(last, np.linspace(0, longest, 5))[0]
    assert np.all(np.abs(counts / 200 - 0.25) < 0.12)  # uniform up to the first token


@pytest.mark.parametrize("split", ["train", "valid"])
def test_counts_and_their_distances_are_uniform(split):
    numbers, gaps = [], []
    for text, answers, gaps_of in drawn("count", split, 300):
        asked = np.flatnonzero(answers)
        numbers += (text[asked] - 48).tolist()
        gaps += gaps_of[asked[asked >= len(text) - 16]].tolist()
        assert len(set(text[asked - 1].tolist())) == len(asked)  # a name is asked for once
    shares = np.bincount(numbers, minlength=9)[1:] / len(numbers)
    np.testing.assert_allclose(shares, 1 / 8, atol=0.03)
    reach = L * (1 if split == "train" else FAR)
    counts = np.histogram(gaps, np.linspace(0, reach, 5))[0] / len(gaps)
    assert max(gaps) <= reach and np.all(np.abs(counts - 0.25) < 0.1)


def test_sizes_that_hold_no_question_are_refused():
    for name, options, message in (
        ("mqar", {"pairs": 9}, "L must be at least 4 \\* pairs = 36"),
        ("count", {}, "L must be at least 32"),
    ):
        with pytest.raises(ValueError, match=message):
            tasks.make(name, 31, **options)


@pytest.mark.parametrize(("length", "needles"), [(34, 1), (102, 5), (128, 6), (289, 16)])
def test_needles_do_not_overlap(length, needles):
    made = tasks.make("needle", length, far=2.0, needles=needles, valid_fraction=0.1)
    for drawn in made.draw("train", 8, 0):
        text = drawn.text.tobytes().decode("latin-1")
        assert len(re.findall(r"# [a-z]{5} is \d{4}", text)) == needles + 1


def prepared(tmp_path, seed=0, **data):
    source = source_of("variables", 32, documents=50, cache=str(tmp_path), **data)
    return prepare(source, seed, quiet=True)


def test_a_task_corpus_stores_gaps_chance_and_fixed_tests(tmp_path):
    corpus = prepared(tmp_path, choose_fraction=0.1)
    assert corpus.valid.chance == pytest.approx(1 / 6)
    counts = {name: len(getattr(corpus, name).lengths) for name in corpora.SPLITS}
    assert counts == {"train": 50, "valid": tasks.TESTS, "choose": tasks.CHOICES}
    assert set(corpus.train.lengths) == {33} and set(corpus.valid.lengths) == {8 * 32 + 1}
    assert np.all((corpus.valid.gaps > 0) == corpus.valid.answers)
    other_seed = prepared(tmp_path, seed=1)
    np.testing.assert_array_equal(corpus.valid.tokens, other_seed.valid.tokens)
    assert corpus.fingerprint != other_seed.fingerprint


def test_gap_law_and_length_change_the_corpus(tmp_path):
    chosen = ({}, {"gaps": "log"}, {"far": 2.0})
    assert len({prepared(tmp_path, **fields).folder for fields in chosen}) == 3
