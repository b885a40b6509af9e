"""The protocol `revised`: what the sentences say and where, what is scored, who is right."""

import re

import numpy as np
import pytest
from measuring import split, text
from sizes import L

from posenc_jax.config import Evaluation
from posenc_jax.evaluation import losses, protocols, records, table, windows
from posenc_jax.evaluation.protocols import revised
from posenc_jax.runtime.errors import ConfigError

LENGTH = 512
GIVEN = "|".join(re.escape(form).replace(r"\{\}", r"(\w+)", 1) for form in revised.FORMS)
SENTENCE = re.compile(GIVEN.replace(r"\{\}\.", r"(\w+)(\.|$)"))


class Words:
    """A tokenizer of words, of which some are two tokens."""

    name, two = "words", (b" Paul", b" orange")

    def __init__(self):
        self.ids = {}

    def measure(self, text, name):
        words = re.findall(rb" ?\w+|\W", text)
        words = [part for w in words for part in ([w[:3], w[3:]] if w in self.two else [w])]
        tokens = [1000 + self.ids.setdefault(word, len(self.ids)) for word in words]
        return np.array(tokens), np.array(list(map(len, words)))

    def decode(self, tokens):
        words = {1000 + number: word for word, number in self.ids.items()}
        return b"".join(words.get(token, b"|") for token in tokens).decode()


@pytest.fixture
def encoder():
    return Words()


@pytest.fixture
def words_subject(subject, encoder):
    return subject(tokenizer=encoder)


def worded(subject, widths=None):
    read = windows.choose(split([2300, 1100, 50, 1030], widths=widths), 1024, per_document=2)
    return revised.protocol.text(read, subject, [LENGTH, 1024], Evaluation())


@pytest.mark.parametrize("length", [256, LENGTH, 1024])
def test_every_row_gives_five_names_two_values_and_asks_for_one(words_subject, encoder, length):
    given = worded(words_subject)
    inner = revised.revised(given, length)
    ends = (given.starts + given.longest - length)[:, None] + np.arange(length + 1)
    before, count = given.split.tokens[ends], len(given.starts)
    after = inner.split.tokens.reshape(count, 2, 5, 3, length + 1)
    asked_values = {}
    for index in np.ndindex(after.shape[:4]):
        window, exchanged, asked, target = index
        row, old = after[index], before[window]
        assert row[0] == old[0] and 10 * 6 < (row != old).sum() < 11 * 10
        found = [[*filter(None, m.groups())] for m in SENTENCE.finditer(encoder.decode(row))]
        *settings, question = [groups[:2] for groups in found]
        assert len(settings) == 10
        of_name = {name: [v for n, v in settings if n == name] for name, _ in settings}
        assert len(of_name) == 5 and all(a != b for a, b in of_name.values())
        older, last = revised.PAIRS[asked]
        assert settings[older][0] == settings[last][0] == question[0]
        values = settings[last][1], settings[older][1]
        assert question[1] == values[target] if target < 2 else question[1] not in values
        assert asked_values.setdefault((window, asked, exchanged), values) == values
    for (window, asked, exchanged), values in asked_values.items():
        assert asked_values[window, asked, 1 - exchanged] == values[::-1]
    place = revised.places(length)
    assert (np.diff(place) >= 24).all() and length - place[-1] > 10


def test_readings_score_the_last_token_of_the_rows_of_a_pair(words_subject, encoder):
    given = worded(words_subject, np.ones(4480, np.int64))
    readings = {one.part: one for one in revised.protocol.readings(given, LENGTH, None, L)}
    pairs = ["412-50", "62-100", "212-150", "112-200", "12-250"]
    assert [*readings][::3] == [*pairs, "all"]
    inner, count = readings["all"].text, len(given.starts)
    said = [encoder.decode([token]) for token in inner.split.tokens[inner.split.answers]]
    assert list(map(len, said)) == inner.split.bytes_of[inner.split.answers].tolist()
    for part, reading in readings.items():
        assert reading.text is inner and reading.scored().sum() == 2 * count * (
            5 if "all" in part else 1
        )
        assert reading.scored()[:, :-1].sum() == 0
    for part in pairs:
        back, apart = map(int, part.split("-"))
        places = readings[part].targets()[readings[part].scored()]
        older = readings[f"older-{part}"]
        tokens = inner.split.tokens
        np.testing.assert_array_equal(tokens[places], tokens[places - back])
        scored = older.targets()[older.scored()]
        np.testing.assert_array_equal(tokens[scored], tokens[scored - back - apart])


class Reading:
    """A reader that gives the last value, the older or one that it likes 1 nat more."""

    prefers = "last"

    def __init__(self, model, tokens, tokens_per_call, **options):
        self.tokens = tokens

    def __call__(self, encoding, starts, length, last, *hooks):
        rows = self.tokens[starts[:, None] + np.arange(length + 1)]
        *context, target = rows.T
        back = np.argmax(np.array(context[::-1]) == target, axis=0)  # of the value's last place
        absent = ~(np.array(context) == target).any(axis=0)
        nats = {"last": back, "older": -back, "fixed": target % 97}[self.prefers].astype(float)
        nats = np.where(absent & (self.prefers != "fixed"), 1e4, nats)
        return np.repeat(nats[:, None], last, 1).astype(np.float32), np.zeros((len(rows), last))


@pytest.fixture
def measured(measure, monkeypatch, words_subject):
    def run(prefers, count=32):
        monkeypatch.setattr(losses, "Reader", type("Reader", (Reading,), {"prefers": prefers}))
        read = windows.choose(split([LENGTH + 1] * count), LENGTH, documents=count)
        options = dict(protocols="revised", extensions="none,yarn", window=False, multiples="32")
        return records.rows(measure(words_subject, read, f"{prefers}", **options))

    return run


def accuracies(rows, prefix=""):
    return [r["accuracy"] for r in rows if re.fullmatch(rf"{prefix}(\d+-\d+|all)", r["part"])]


def test_order_is_told_from_a_taste_for_values(measured):
    last, older, fixed = map(measured, ("last", "older", "fixed"))
    assert accuracies(last) == [1.0] * 12 and accuracies(older) == [0.0] * 12  # none and yarn
    assert accuracies(last, "older-") == [0.0] * 12
    assert accuracies(last, "absent-") == accuracies(older, "absent-") == [1.0] * 12
    assert accuracies(fixed) == [0.5] * 12  # in each pair once, as the two values are exchanged
    assert accuracies(fixed, "absent-")[5] == pytest.approx(1 / 3, abs=0.15)
    margins = {row["part"]: row["margin"] for row in last if row["margin"] is not None}
    assert margins["412-50"] == pytest.approx(50) and margins["12-250"] == pytest.approx(250)
    assert all(abs(row["margin"]) < 1e-6 for row in fixed if row["margin"] is not None)


def test_the_table_has_order_margin_and_found(measured):
    lines = [line.split() for line in table.table(measured("last")).splitlines()]
    assert ["412-50", "62-100", "212-150", "112-200", "12-250"] in [line[:5] for line in lines]
    assert ["none", *["1.00"] * 5] in [line[:6] for line in lines]
    assert ["margin", "50.00", "100.00", "150.00"] in [line[:4] for line in lines]


def test_what_does_not_suit_it_is_refused_and_few_questions_warned_of(subject):
    with pytest.raises(ConfigError, match="revised needs names and values .* tokenizer bytes"):
        revised.protocol.text(text(LENGTH, lengths=[600, 600]), subject(), [LENGTH], Evaluation())
    with pytest.raises(ConfigError, match="revised needs lengths of 256 tokens or more"):
        revised.protocol.check([255, 512], None, L)
    revised.protocol.check([256, 512], None, L)
    assert "asks 30 questions of each pair" in revised.protocol.warning(15, None)
    assert revised.protocol.warning(16, None) is None
    assert protocols.find("revised").wanted(None) == 16


def test_names_and_values_are_one_token_each(words_subject):
    forms = worded(words_subject).of_protocol
    assert set(forms[0].names) == set(revised.NAMES) - {"Paul"}
    assert [len(form.values) for form in forms] == [9, 10, 10, 10, 10]  # without orange
