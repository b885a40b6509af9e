"""The protocol `planted`: what the sentences say and where, what is scored, who answers it."""

import re

import numpy as np
import pytest
from measuring import split, text
from sizes import L

from posenc_jax.config import Evaluation
from posenc_jax.evaluation import losses, protocols, records, table, windows
from posenc_jax.evaluation.protocols import planted
from posenc_jax.runtime.errors import ConfigError

LENGTH = 512
CONTEXT = 5  # tokens before a value, which hold the name


class Words:
    """A tokenizer of words, of which some are two tokens."""

    name, two = "words", (b" Paul", b" horse", b" whale")

    def __init__(self):
        self.ids = {}

    def measure(self, text, name):
        words = re.findall(rb" ?\w+|\W", text)
        words = [part for w in words for part in ([w[:3], w[3:]] if w in self.two else [w])]
        tokens = [100 + self.ids.setdefault(word, len(self.ids)) for word in words]
        return np.array(tokens), np.array(list(map(len, words)))

    def decode(self, tokens):
        words = {100 + number: word for word, number in self.ids.items()}
        return b"".join(words[token] for token in tokens).decode()


@pytest.fixture
def encoder():
    return Words()


@pytest.fixture
def words_subject(subject, encoder):
    return subject(tokenizer=encoder)


@pytest.fixture
def worded(words_subject):
    read = windows.choose(split([2300, 1100, 50, 1030]), 1024, per_document=2)
    return planted.protocol.text(read, words_subject, [LENGTH, 1024], Evaluation())


def rows_of(reading):  # [W, length + 1]
    return reading.text.split.tokens[reading.starts[:, None] + np.arange(reading.length + 1)]


@pytest.mark.parametrize("length", [LENGTH, 1024])
def test_sentences_lie_at_exact_distances_and_nothing_else_changes(worded, encoder, length):
    ends = (worded.starts + worded.longest - length)[:, None] + np.arange(length + 1)
    before = worded.split.tokens[ends]
    readings = planted.protocol.readings(worded, length, None, L)
    separations = [8, 32, 128] + [512] * (length > 640)
    parts = ["0", *(f"1-{n}" for n in separations)] + ["3-8", "3-32"] + ["3-128"] * (length > 512)
    assert [reading.part for reading in readings] == parts
    for reading in readings:
        older, separation = reading.facts["older"], int(reading.facts["separation"] or 0)
        question = length - 5  # " The key of Alice is dog": the last token is the value
        settings = [question - 128 - n * separation for n in range(older + 1)]
        free = np.ones(length + 1, bool)
        for at in settings:
            free[at : at + 7] = False
        free[question:] = False
        now = rows_of(reading)
        np.testing.assert_array_equal(now[:, free], before[:, free])
        for row in now:
            asked = encoder.decode(row[question:])
            said = [encoder.decode(row[at : at + 7]) for at in settings]
            assert re.fullmatch(r" The key of \w+ is \w+", asked) and said[0] == f"{asked}."
            assert len(set(said)) == older + 1
            assert {sentence.split()[3] for sentence in said} == {asked.split()[3]}
        assert reading.facts["orderless"] == 1 / (older + 1)


def test_all_cases_ask_for_the_same_value_which_alone_is_scored(worded):
    readings = planted.protocol.readings(worded, LENGTH, None, L)
    assert len({reading.token_hash for reading in readings}) == 1
    for reading in readings:
        scored = reading.targets()[reading.scored()]
        np.testing.assert_array_equal(scored, np.flatnonzero(reading.text.split.answers))
        tokens = reading.text.split.tokens
        np.testing.assert_array_equal(tokens[scored], tokens[scored - 128])
    values = readings[0].text.split.tokens[scored]
    assert len(set(values.tolist())) > 1  # windows differ
    again = planted.protocol.readings(worded, LENGTH, None, L)
    assert [one.text.hash for one in readings] == [one.text.hash for one in again]


def test_the_bytes_of_an_answer_are_those_of_its_value(words_subject, encoder):
    widths = np.ones(1200, np.int64)
    read = windows.choose(split([600, 600], widths=widths), LENGTH)
    read = planted.protocol.text(read, words_subject, [LENGTH], Evaluation())
    inner = planted.protocol.readings(read, LENGTH, None, L)[1].text.split
    said = [encoder.decode([token]) for token in inner.tokens[inner.answers]]
    assert list(map(len, said)) == inner.bytes_of[inner.answers].tolist()
    assert set(inner.bytes_of[~inner.answers]) == {1}


def test_names_and_values_are_one_token_each(worded, encoder):
    words = worded.of_protocol
    said = {encoder.decode([token]).strip() for token in words.values}
    assert said == set(planted.VALUES) - {"horse", "whale"}
    named = {encoder.decode([token]).strip() for token in words.names}
    assert named == set(planted.NAMES) - {"Paul"}
    reading = planted.protocol.readings(worded, LENGTH, None, L)[0]
    assert reading.facts["chance"] == 1 / len(said)


def test_tokenizers_without_such_words_are_refused(subject):
    with pytest.raises(ConfigError, match="planted needs names and values .* tokenizer bytes"):
        planted.protocol.text(text(LENGTH, lengths=[600, 600]), subject(), [LENGTH], Evaluation())


class Recalling:
    """A reader that gives the value of one of the settings: 0 the last, -1 the first."""

    which: int | None = 0  # None: one at random

    def __init__(self, model, tokens, tokens_per_call, **options):
        self.tokens, self.rng = tokens, np.random.default_rng(0)

    def __call__(self, encoding, starts, length, last, *hooks):
        chosen = np.zeros((len(starts), last), np.int32)
        for row, start in enumerate(starts):
            window = self.tokens[start : start + length + 1]
            seen = np.lib.stride_tricks.sliding_window_view(window[:-1], CONTEXT + 1)
            asked = window[-CONTEXT - 1 : -1]
            found = seen[(seen[:, :CONTEXT] == asked).all(axis=1), CONTEXT][::-1]
            which = self.rng.integers(len(found)) if self.which is None else self.which
            chosen[row, -1] = found[which]
        return np.ones(chosen.shape, np.float32), chosen


@pytest.fixture
def accuracies(measure, monkeypatch, words_subject):
    def run(which, count=64):
        reader = type("Reader", (Recalling,), {"which": which})
        monkeypatch.setattr(losses, "Reader", reader)
        read = windows.choose(split([LENGTH + 1] * count), LENGTH, documents=count)
        options = dict(protocols="planted", extensions="none,yarn", window=False, multiples="32")
        cells = measure(words_subject, read, f"{which}", **options)
        return cells, {(row["method"], row["part"]): row["accuracy"] for row in records.rows(cells)}

    return run


def test_a_reader_of_order_is_told_from_one_without(accuracies):
    _, last = accuracies(0)
    assert len(last) == 2 * 6 and set(last.values()) == {1.0}  # none and yarn
    _, first = accuracies(-1)
    assert {right for (_, part), right in first.items() if part == "0"} == {1.0}
    assert {right for (_, part), right in first.items() if part != "0"} == {0.0}
    _, chosen = accuracies(None)
    for (_, part), right in chosen.items():
        expected = {"0": 1.0, "1": 0.5, "3": 0.25}[part[0]]
        assert right == pytest.approx(expected, abs=0.2 * (part != "0"))


def test_rows_the_table_and_the_picture(accuracies):
    cells, _ = accuracies(0, count=3)
    rows = records.rows(cells)
    assert {row["method"] for row in rows} == {"none", "yarn:32"}
    assert len({row["token_hash"] for row in rows}) == 1  # the same questions of every method
    facts = [(row["part"], row["older"], row["separation"]) for row in rows[:3]]
    assert facts == [("0", 0, None), ("1-8", 1, "8"), ("1-32", 1, "32")]
    assert all(row["answers"] == 3 and not row["flag"] for row in rows)
    assert all(row["older_right"] is row["other"] is None for row in rows)  # of last_of_two alone
    words = [line.split() for line in table.table(records.rows(cells)).splitlines()]
    assert ["0", "1-8", "1-32", "1-128", "3-8", "3-32"] in words
    assert ["none", *["1.000"] * 6] in words
    panels = planted.protocol.picture(cells)
    assert panels is not None
    assert {
        name: [(line.name, list(line.x), list(line.y)) for line in lines]
        for name, lines in panels.lines.items()
    } == {
        "1 older setting": [
            ("none", [8, 32, 128], [1.0] * 3),
            ("yarn:32", [8, 32, 128], [1.0] * 3),
            ("without order", [8, 128], [0.5] * 2),
        ],
        "3 older settings": [
            ("none", [8, 32], [1.0] * 2),
            ("yarn:32", [8, 32], [1.0] * 2),
            ("without order", [8, 32], [0.25] * 2),
        ],
    }
    # Of an interrupted evaluation
    some = [cell for cell in cells if cell.facts["older"] < 3]
    panels = planted.protocol.picture(some)
    assert panels is not None and list(panels.lines) == ["1 older setting"]
    assert planted.protocol.picture([c for c in some if not c.facts["older"]]) is None


def test_short_windows_are_refused_and_few_questions_warned_of():
    with pytest.raises(ConfigError, match="planted needs lengths of 256 tokens or more"):
        planted.protocol.check([255, 512], None, L)
    planted.protocol.check([256, 512], None, L)
    assert "asks 31 questions" in planted.protocol.warning(31, None)
    assert planted.protocol.warning(32, None) is None
    assert protocols.find("planted").wanted(None) == 32


def test_long_sentences_do_not_overlap():
    near = {case.separation for case in planted.cases(1024, 7) if case.older}
    far = {case.separation for case in planted.cases(1024, 9) if case.older}
    assert near - far == {8}
