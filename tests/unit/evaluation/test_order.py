"""`found` and `last_of_two`, read by readers of known reach and order instead of a model."""

import dataclasses

import numpy as np
import pytest
from measuring import split

from posenc_jax.data.tasks import variables
from posenc_jax.data.tasks.variables import ASK, FILLER_TOKENS, SET, VALUE, VALUES
from posenc_jax.evaluation import evaluate, protocols, records, windows
from posenc_jax.evaluation.cells import Measured
from posenc_jax.evaluation.protocols.last_of_two import ONE_PASS
from posenc_jax.runtime.errors import ConfigError

L, FAR = 32, 8
FACTS = dict(train_length=L, extension="none", scale=None, window=None)


@pytest.fixture(scope="module")
def text():
    task = variables.Variables(
        train_length=L, far=float(FAR), variant="ordered", gaps="octaves", older="0.5,0.5"
    )
    drawn = list(task.draw("valid", 600, 0))
    longest = task.farthest
    whole = dataclasses.replace(
        split([longest + 1] * len(drawn), np.concatenate([one.answers for one in drawn])),
        tokens=np.concatenate([one.text for one in drawn]),
        gaps=np.concatenate([one.gaps for one in drawn]),
        chance=1 / VALUES,
        task="variables",
    )
    starts = np.arange(len(drawn)) * (longest + 1)
    return windows.Text(whole, np.arange(len(drawn)), starts, longest)


def reader(span, order):
    """Answer with the last of the settings seen in the last `span` tokens with probability `order`,
    else with the first; guess where there is none."""

    def read(rows, rng):  # [N, length + 1] -> [N, length], the token ranked first
        chosen = rng.integers(VALUE, VALUE + VALUES, (len(rows), rows.shape[1] - 1))
        for row, place in zip(
            *np.nonzero((rows[:, :-1] >= ASK) & (rows[:, :-1] < SET)), strict=True
        ):
            begin = max(0, place - span)
            seen = rows[row, begin:place].astype(int) - SET
            values = seen[(seen >= 0) & (seen // VALUES == rows[row, place] - ASK)] % VALUES
            if len(values):
                chosen[row, place] = VALUE + values[-1 if rng.random() < order else 0]
        return chosen

    return read


def measured(text, name, read, length=FAR * L):
    """Rows of a protocol by part."""
    rng = np.random.default_rng(0)
    for one in protocols.find(name).readings(text, length, None, L):
        windows = one.plan.starts[:, None] + np.arange(length + 1)
        chosen = read(np.asarray(one.text.split.tokens[windows]), rng)
        sums = evaluate.sums_of(one, np.ones(chosen.shape), chosen, L, places=False)
        facts = FACTS | dict(one.facts, protocol=name, length=length, part=one.part)
        yield one.part, records.row(Measured({"older": None} | facts, sums))


WHOLE = FAR * L


@pytest.mark.parametrize(
    ("span", "order", "found", "held", "ordered"),
    [
        (WHOLE, 1.0, 1, 1, 1),
        (WHOLE, 0.5, 1, 1, 0.5),  # without order
        (WHOLE, 0.8, 1, 1, 0.8),
        (L, 1.0, 0, 1 / VALUES**2, None),  # a window of L, which orders all that it holds
        (L, 0.5, 0, 1 / VALUES**2, None),
    ],
)
def test_reach_and_order_beyond_L_are_apart(text, span, order, found, held, ordered):
    once = dict(measured(text, "found", reader(span, order)))
    assert once["beyond"]["found"] == pytest.approx(found, abs=0.05)
    assert once["within"]["found"] == 1
    twice = dict(measured(text, "last_of_two", reader(span, order)))
    beyond, single = twice["beyond"], twice[ONE_PASS]
    assert beyond["held"] == pytest.approx(held, abs=0.03)
    assert single["tokens"] == beyond["tokens"] > 500
    assert single["found"] == pytest.approx(found, abs=0.05)
    for row in (beyond, single):
        assert row["order"] == (ordered and pytest.approx(ordered, abs=0.05))
    parts = [row for part, row in twice.items() if part.startswith("apart-")]
    assert sum(row["tokens"] for row in parts) == beyond["tokens"]
    assert single["older_right"] + single["other"] + single["accuracy"] == pytest.approx(1)


@pytest.mark.parametrize("length", [L, WHOLE])
def test_every_question_of_the_second_half_is_asked_once(text, length):
    """By hand: the settings of each scored answer, in the half and the part that it belongs to."""
    seen = []
    for name in ("found", "last_of_two"):
        for one in protocols.find(name).readings(text, length, None, L):
            row, place = np.nonzero(one.plan.scored())
            rows = one.text.split.tokens[one.plan.starts[:, None] + np.arange(length + 1)]
            assert place.min() >= length // 2
            for number, at in zip(row, place, strict=True):
                own = rows[number, :at].astype(int) - SET
                back = at - np.flatnonzero((own >= 0) & (own // VALUES == rows[number, at] - ASK))
                assert len(back) == 1 + one.facts["older"]
                last, apart = back[-1], back[0] - back[-1]
                kind, _, part = one.part.rpartition("apart-" if "apart" in one.part else "back-")
                if one.part in ("within", "beyond", ONE_PASS):
                    assert (last <= L) == (one.part == "within")
                    seen += [(name, number, at)] if one.part != ONE_PASS else []
                elif one.part == "hard":
                    assert 17 <= last <= 64 and 1 <= apart <= 8
                else:
                    low, _, high = part.partition("-")
                    value = apart if "apart" in one.part else last
                    assert int(low) <= value <= int(high or low)
    assert len(seen) == len(set(seen)) > 1_000


def test_a_pair_is_read_again_without_either_of_its_settings(text):
    whole = {one.part: one for one in protocols.find("last_of_two").readings(text, WHOLE, None, L)}
    one = whole["beyond"]
    rows = one.text.split.tokens[one.plan.starts[:, None] + np.arange(WHOLE + 1)]
    as_is, without_last, without_older = np.split(rows.astype(int), 3)
    row, place = np.nonzero(one.plan.scored())
    assert row.max() < len(as_is)
    for changed, kept in ((without_last, 0), (without_older, -1)):
        for number, at in zip(row, place, strict=True):
            own = (as_is[number, :at] - SET) // VALUES == as_is[number, at] - ASK
            settings = np.flatnonzero(own & (as_is[number, :at] >= SET))
            gone = settings[-1 if kept == 0 else 0]
            assert changed[number, gone] in FILLER_TOKENS
            assert changed[number, settings[kept]] == as_is[number, settings[kept]]
        assert (changed != as_is).sum() == len(row)


def test_a_text_without_settings_has_none_to_order(text):
    plain = dataclasses.replace(text, split=dataclasses.replace(text.split, task=None))
    for name in ("found", "last_of_two"):
        with pytest.raises(ConfigError, match="needs a text that sets names"):
            protocols.find(name).readings(plain, WHOLE, None, L)
