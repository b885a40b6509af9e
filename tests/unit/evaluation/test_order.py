"""`found` and `last_of_two`, read by readers of known reach and order instead of a model, and keys
that are hidden from queries."""

import dataclasses

import jax
import numpy as np
import pytest
from measuring import split
from sizes import DIMS, VOCAB
from sizes import L as SHORT

import posenc_jax
from posenc_jax.data.tasks import FILLERS, variables
from posenc_jax.data.tasks.variables import ASK, SET, VALUE, VALUES
from posenc_jax.evaluation import diagnostics, evaluate, knockout, protocols, records, windows
from posenc_jax.evaluation.knockout import Hidden
from posenc_jax.evaluation.protocols.last_of_two import ONE_PASS
from posenc_jax.runtime.errors import ConfigError

L, FAR = 32, 8
FACTS = dict(train_length=L, extension="none", scale=None, window=None)


@pytest.fixture(scope="module")
def text():
    return text_of(600, variant="ordered", gaps="octaves", older="0.5,0.5")


def text_of(documents, **options):
    task = variables.Variables(train_length=L, far=float(FAR), **options)
    drawn = list(task.draw("valid", documents, 0))
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
        windows = one.starts[:, None] + np.arange(length + 1)
        chosen = read(np.asarray(one.text.split.tokens[windows]), rng)
        facts = FACTS | dict(one.facts, protocol=name, length=length, part=one.part)
        yield one.part, records.row(evaluate.summed(facts, one, np.ones(chosen.shape), chosen))


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
            row, place = np.nonzero(one.scored())
            rows = one.text.split.tokens[one.starts[:, None] + np.arange(length + 1)]
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
    rows = one.text.split.tokens[one.starts[:, None] + np.arange(WHOLE + 1)]
    as_is, without_last, without_older = (rows[n::3].astype(int) for n in range(3))
    scored = one.scored()
    assert not scored[1::3].any() and not scored[2::3].any()
    row, place = np.nonzero(scored[0::3])
    for changed, kept in ((without_last, 0), (without_older, -1)):
        for number, at in zip(row, place, strict=True):
            own = (as_is[number, :at] - SET) // VALUES == as_is[number, at] - ASK
            settings = np.flatnonzero(own & (as_is[number, :at] >= SET))
            gone = settings[-1 if kept == 0 else 0]
            assert changed[number, gone] in FILLERS
            assert changed[number, settings[kept]] == as_is[number, settings[kept]]
        assert (changed != as_is).sum() == len(row)


def test_a_text_without_settings_has_none_to_order(text):
    plain = dataclasses.replace(text, split=dataclasses.replace(text.split, task=None))
    for name in ("found", "last_of_two"):
        with pytest.raises(ConfigError, match="needs a text that sets names"):
            protocols.find(name).readings(plain, WHOLE, None, L)
    once = text_of(20, variant="once")
    assert protocols.find("last_of_two").readings(once, WHOLE, None, L) == []
    with pytest.raises(ConfigError, match="no name that was set twice"):
        knockout.pairs_of(once, WHOLE, L)


@pytest.mark.parametrize(
    ("name", "extension"),
    [
        ("rope", "self_extend"),
        ("nope", "logn"),
        ("alibi", "none"),
        ("fire", "none"),
        ("fox", "none"),
    ]
    + [("t5", "none")],
)
def test_a_hidden_key_gets_no_weight_and_others_share_its_own(make_model, name, extension):
    model, length = make_model(), 2 * SHORT
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(1))
    encoding = posenc_jax.extend(extension, encoding, 2.0)
    tokens = np.random.default_rng(0).integers(0, VOCAB, (2, length)).astype(np.int32)
    key, unseen = np.full((2, length), -1, np.int32), np.zeros((2, length), bool)
    end = np.zeros_like(key)

    def weights(read):
        return list(diagnostics.attention_weights(model, read, tokens))

    def hidden():
        return Hidden(dims=encoding.dims, inner=encoding, key=key, end=end, unseen=unseen)

    plain, nothing = weights(encoding), weights(hidden())
    for one, other in zip(plain, nothing, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    key[0, length - 3], end[0, length - 3], unseen[1, 5] = 4, 6, True
    for layer, one in enumerate(weights(hidden())):
        own, before = np.asarray(one), np.asarray(plain[layer])
        assert np.all(own[0, :, length - 3, 4:6] == 0) and np.all(own[1, :, 6:, 5] == 0)
        assert np.all(own[1, :, 5, 5] > 0)  # a token sees itself
        np.testing.assert_allclose(own.sum(axis=-1), 1, atol=1e-5)
        if layer == 0:  # other queries read what they did
            np.testing.assert_allclose(
                own[0, :, : length - 3], before[0, :, : length - 3], atol=1e-6
            )
            np.testing.assert_allclose(
                own[0, :, length - 2 :], before[0, :, length - 2 :], atol=1e-6
            )


def test_encodings_with_attention_of_their_own_are_refused():
    for name in ("stick_breaking", "cope", "dape", "hybrid"):
        options = {"pattern": "global,decay"} if name == "hybrid" else {}
        with pytest.raises(ConfigError, match=f"encoding '{name}' does not add its bias"):
            knockout.check(posenc_jax.build(name, DIMS, key=jax.random.key(0), **options))


def test_pairs_are_those_of_last_of_two_and_the_control_is_filler(text):
    pairs = knockout.pairs_of(text, WHOLE, L)
    asked = pairs.rows[pairs.row, pairs.question]
    for settings, index in ((pairs.last, 0), (pairs.older, 1)):
        tokens = pairs.rows[pairs.row, settings].astype(int) - 112
        np.testing.assert_array_equal(tokens // 6, asked - 65)
        np.testing.assert_array_equal(48 + tokens % 6, pairs.answers[:, index])
    assert np.all((pairs.older < pairs.last) & (pairs.last < pairs.question - L))
    np.testing.assert_array_equal(pairs.rows[pairs.row, pairs.question + 1], pairs.answers[:, 0])
    for name, (key, unseen) in knockout.hidden_keys(pairs).items():
        assert unseen.any() == (name == "every filler")
        row, query = np.nonzero(key >= 0)
        assert set(zip(row, query, strict=True)) <= set(zip(pairs.row, pairs.last, strict=True))
        if name.startswith("filler"):
            assert pairs.fillers[row, key[row, query]].all() and len(row) > 0.9 * len(pairs.row)
            assert np.median(np.abs(key[pairs.row, pairs.last] - pairs.older)) <= 2
        if name.startswith("older"):
            np.testing.assert_array_equal(key[pairs.row, pairs.last], pairs.older)
