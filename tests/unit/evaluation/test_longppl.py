"""The protocol `longppl`: the targets that a reference chooses, and what it refuses."""

import dataclasses

import numpy as np
import pytest
from measuring import text
from sizes import L

from posenc_jax.config import schema
from posenc_jax.evaluation import check, losses, protocols, records
from posenc_jax.evaluation.protocols import longppl
from posenc_jax.runs import subject as subjects
from posenc_jax.runtime.errors import ConfigError

LONGEST, LAST = 4 * L, 4
WHOLE = np.array([[1.9, 1.9, 2.1, 0.1], [0.0, 1.0, 1.5, 5.0]])  # nats of two windows, in turn
NEAR = np.array([[4.0, 3.8, 9.0, 2.0], [2.5, 1.0, 3.6, 9.0]])
KEYS = np.array([[1, 0, 0, 0], [1, 0, 1, 0]], bool)  # lower by more than 2, and below 2


class Chooser:
    """A reader whose losses are given; it notes the windows that it reads."""

    calls: list = []

    def __init__(self, config, subject, tokens):
        pass

    def __call__(self, encoding, starts, length, last):
        self.calls.append((length, last, starts))
        nats = WHOLE if length == LONGEST else NEAR
        return np.resize(nats, (len(starts), last)), None


@pytest.fixture
def reference(subject, monkeypatch):
    """Runs by name: one trained at the longest length, and others that are refused."""
    right = dataclasses.replace(subject(trained=LONGEST), name="right")
    other = type("Other", (), {"hash": "x"})()
    runs = {
        "right": right,
        "short": dataclasses.replace(right, trained=2 * L),
        "other": dataclasses.replace(right, tokenizer=other),
        "knows": dataclasses.replace(right, digests=np.array([2], np.uint64)),
    }
    monkeypatch.setattr(subjects, "load_subject", lambda path, place: runs[path.name])
    monkeypatch.setattr(losses, "reader_of", Chooser)
    monkeypatch.setattr(Chooser, "calls", [])


@pytest.fixture
def measured(measure, reference):
    return measure(
        protocols="same_token,longppl",
        extensions="none",
        multiples="1,2,4",
        stride=0,
        last=LAST,
        reference="right",
    )


def test_the_reference_chooses_targets_that_far_context_decides(reference, subject, settings):
    config = settings(reference="right", last=LAST, short=24, multiples="1,2,4")
    read = text(LONGEST)
    keyed = longppl.protocol.text(read, subject(), [L, 2 * L, LONGEST], config)
    windows = len(read.starts)
    np.testing.assert_array_equal(keyed.of_protocol, np.resize(KEYS, (windows, LAST)))
    (short, *_, near), (whole, *_, starts) = Chooser.calls
    assert (short, whole) == (24, LONGEST)
    np.testing.assert_array_equal(starts, read.starts)
    np.testing.assert_array_equal(near, read.starts + LONGEST - 24)
    for length in (L, LONGEST):
        (reading,) = longppl.protocol.readings(keyed, length, LAST, L)
        scored = reading.targets()[reading.scored()]
        last = read.starts[:, None] + 1 + LONGEST - LAST + np.arange(LAST)
        np.testing.assert_array_equal(scored, last[keyed.of_protocol])


def test_rows_of_all_lengths_score_the_same_few_targets(measured):
    rows = [row for row in records.rows(measured) if row["protocol"] == "longppl"]
    assert {row["length"] for row in rows} == {L, 2 * L, 4 * L}
    assert len({row["token_hash"] for row in rows}) == 1
    every = [row for row in records.rows(measured) if row["protocol"] == "same_token"]
    for row in rows:
        windows = int(every[0]["tokens"]) // LAST
        assert row["tokens"] == np.resize(KEYS, (windows, LAST)).sum()
        assert row["ppl"] == pytest.approx(np.exp(row["nll"]), rel=1e-6)
    assert {row["token_hash"] for row in every}.isdisjoint({rows[0]["token_hash"]})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reference": "short"}, "trained at 32 tokens; its losses at 64 would be those of extra"),
        ({"reference": "other"}, "reference right has another tokenizer than run"),
        ({"reference": "knows"}, "was trained on 33% of the documents read"),
        ({"reference": "right", "short": 2}, "at least last = 4 and below the longest length, 64"),
        ({"reference": "right", "short": 64}, "below the longest length, 64; got 64"),
    ],
)
def test_references_that_would_mislead_are_refused(fields, message, reference, subject, settings):
    config = settings(last=LAST, multiples="1,2,4", **fields)
    with pytest.raises(ConfigError, match=message):
        longppl.protocol.text(text(LONGEST), subject(), [L, LONGEST], config)


def test_a_text_without_such_targets_is_refused(reference, subject, settings, monkeypatch):
    monkeypatch.setattr(longppl, "LOSS", 0.0)
    config = settings(reference="right", last=LAST, multiples="1,2,4")
    with pytest.raises(ConfigError, match="far context decides none of .* targets for right"):
        longppl.protocol.text(text(LONGEST), subject(), [L, LONGEST], config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"protocols": "longppl"}, "longppl in protocols needs reference=RUN"),
        ({"reference": "run"}, "reference = run has no effect without longppl in protocols"),
        ({"short": 9}, "short = 9 has no effect without longppl in protocols"),
    ],
)
def test_fields_of_the_reference_belong_to_longppl(fields, message, settings):
    assert message in "\n".join(check.read(schema.as_fields(settings(stride=0, **fields)))[1])


def test_its_null_is_its_value_at_l(measured):
    cells = [cell for cell in measured if cell.facts["protocol"] == "longppl"]
    curve = {("longppl", c.facts["length"]): c for c in cells if c.facts["window"] is None}
    terms = protocols.find("longppl").null(L, curve["longppl", 4 * L], curve)
    (share, nats, tokens), *rest = terms
    assert share == 1 and rest == []
    np.testing.assert_array_equal(nats, curve["longppl", L].nats)
    np.testing.assert_array_equal(tokens, curve["longppl", L].tokens)
