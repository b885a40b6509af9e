"""Protocols of answers, of parts and of changed context: what they score and say."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from measuring import LENGTHS, find, made_cell, split, text
from sizes import L

from posenc_jax.data.tasks import variables
from posenc_jax.evaluation import protocols, records, table, windows
from posenc_jax.runtime.errors import ConfigError

LAST = 2
SAME = "none", "same_token", L


def asked(seed=0, documents=12):
    """A text whose last two tokens are answers in most documents, from anywhere before them."""
    longest = max(LENGTHS)
    lengths = [longest + 1] * documents
    rng = np.random.default_rng(seed)
    answers = np.zeros((documents, longest + 1), bool)
    answers[:, -1] = True
    answers[::2, -2] = True
    gaps = np.where(answers, rng.integers(1, longest, answers.shape), 0)
    whole = dataclasses.replace(
        split(lengths, answers.ravel()), gaps=gaps.ravel().astype(np.int32), chance=0.25
    )
    chosen = text(longest, documents=documents)
    return dataclasses.replace(
        chosen,
        split=whole,
        document=np.arange(documents),
        starts=np.arange(documents) * (longest + 1),
        longest=longest,
    )


def readings(name, read, length):
    return protocols.find(name).readings(read, length, LAST, L)


def targets(reading):
    return np.sort(reading.targets()[reading.scored()])


@pytest.mark.parametrize("length", LENGTHS)
def test_answers_are_the_marked_among_the_last_targets(length):
    read = asked()
    (reading,) = readings("answers", read, length)
    scored = np.flatnonzero(read.split.answers)
    np.testing.assert_array_equal(targets(reading), scored)
    before = np.where(scored % 65 == 64, length - 1, length - 2)
    known = np.mean(read.split.gaps[scored] <= before)
    assert reading.facts["ceiling"] == pytest.approx(known + (1 - known) * 0.25)
    assert reading.facts["chance"] == 0.25


def test_parts_by_gap_are_all_answers_of_the_longest_window_each_once():
    read = asked()
    assert readings("gap", read, LENGTHS[0]) == []
    parts = readings("gap", read, read.longest)
    found = np.concatenate([targets(part) for part in parts])
    np.testing.assert_array_equal(np.sort(found), np.flatnonzero(read.split.answers))
    for part in parts:
        low, high = map(int, part.part.split("-"))
        gaps = read.split.gaps[targets(part)]
        assert low <= gaps.min() and gaps.max() <= high
    assert len({part.token_hash for part in parts}) == len(parts)


def test_depths_are_of_answers_within_the_window():
    read = asked(documents=200)
    for length in LENGTHS:
        parts = readings("depth", read, length)
        (all_,) = readings("answers", read, length)
        known = (all_.facts["ceiling"] - 0.25) / 0.75
        count = sum(len(targets(part)) for part in parts)
        assert count == round(known * len(targets(all_)))
        for part in parts:
            low, high = map(float, part.part.split("-"))
            place = np.nonzero(part.scored())[1]
            gaps = read.split.gaps[part.targets()][part.scored()]
            tenths = [
                Fraction(int(10 * (n - gap)), int(n)) for n, gap in zip(place, gaps, strict=True)
            ]
            assert all(round(10 * low) <= tenth < round(10 * high) for tenth in tenths)


def test_text_without_answers_has_none_to_score():
    with pytest.raises(ConfigError, match="protocol answers scores the answers .* marks none"):
        readings("answers", text(), LENGTHS[-1])


def tokens(reading):  # [W, length + 1]
    places = reading.starts[:, None] + np.arange(reading.length + 1)
    return np.asarray(reading.text.split.tokens)[places]


@pytest.mark.parametrize("length", [L, LENGTHS[-1]])
def test_order_changes_the_far_context_only(length):
    read = asked()
    found = {one.part: one for one in readings("order", read, length)}
    assert {name.partition("-")[0] for name in found} >= {
        "whole",
        "shuffled",
        "reversed",
        "dropped",
    }
    whole = tokens(found["whole"])
    assert len({one.token_hash for one in found.values()}) == 1  # so that they are paired
    for name, one in found.items():
        kind, _, near = name.partition("-")
        if kind == "whole":
            continue
        kept = int(near) + LAST
        now = tokens(one)
        np.testing.assert_array_equal(now[:, -kept:], whole[:, -kept:])
        if kind == "dropped":
            assert now.shape[1] == kept
            continue
        far, before = now[:, :-kept], whole[:, :-kept]
        assert far.shape == before.shape
        if kind == "reversed":
            np.testing.assert_array_equal(far, before[:, ::-1])
        elif kind == "shuffled":
            np.testing.assert_array_equal(np.sort(far), np.sort(before))
            assert (far != before).any()
        else:
            own = read.document[:, None] == read.document[None, :]
            alike = (far[:, None] == before[None, :]).all(axis=2)  # [W, W]: whose context it is
            assert alike.any(axis=1).all() and not (alike & own).any()


def test_swapped_context_is_from_another_document():
    """Also where documents have several windows; where one has most of them, there is none."""
    several = asked()
    several = dataclasses.replace(several, document=np.repeat(range(3), 4))
    (part,) = {one.part for one in readings("order", several, L)} & {"swapped-4"}
    found = {one.part: one for one in readings("order", several, L)}
    far, before = tokens(found[part])[:, : -4 - LAST], tokens(found["whole"])[:, : -4 - LAST]
    np.testing.assert_array_equal(far, np.roll(before, 4, axis=0))
    most = dataclasses.replace(several, document=np.repeat([0, 1], [7, 5]))
    assert "swapped-4" not in {one.part for one in readings("order", most, L)}


def test_a_run_is_measured_by_parts_and_its_table_says_so(measure, tmp_path):
    options = dict(read=asked(), last=LAST, window=False, extensions="none")
    cells = measure(protocols="same_token,answers,gap,depth", multiples="1,4", **options)
    # The changed contexts of L alone, as every length that is read is a program.
    cells += measure(protocols="order", multiples="1", **options)
    _, rows = records.write(tmp_path, cells)
    assert rows == records.rows(records.read_cells(tmp_path))
    for row in rows:
        if row["protocol"] == "answers":
            assert row["tokens"] == row["answers"] == 18
            assert row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"]
            assert row["chance"] == 0.25
    by_gap = [row for row in rows if row["protocol"] == "gap"]
    assert sum(row["answers"] for row in by_gap) == 18
    longest = find(cells, protocol="answers", length=LENGTHS[-1])
    assert sum(row["accuracy"] * row["answers"] for row in by_gap) == longest.right.sum()
    # Depths beyond L are of other answers than those at L.
    deep = [row for row in rows if row["protocol"] == "depth" and row["length"] > L]
    assert len(deep) > 2 and all(row["null_nll"] is row["gain_bpb"] is None for row in deep)
    (whole,) = (row for row in rows if (row["protocol"], row["part"]) == ("order", "whole"))
    (same,) = (r for r in rows if (r["method"], r["protocol"], r["length"]) == SAME)
    assert whole["nll"] == pytest.approx(same["nll"])
    picture = protocols.find("order").picture
    changed = [c for c in cells if c.facts["part"].endswith("-4")]
    stopped = [c._replace(facts=c.facts | {"length": 4 * L}) for c in changed]
    panels = picture(cells + stopped)  # of an interrupted evaluation, without `whole` there
    assert panels is not None and list(panels.lines) == [f"{L} tokens"]
    assert picture(stopped) is None
    out = table.table(records.rows(cells))
    for line in ("ceiling", "a guess is right in 0.250", "shuffled-4", "share of answers"):
        assert line in out


def curve(*nats, spread=0.0):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=20)
    noise = (noise - noise.mean()) * spread
    facts = dict(evaluation="e", run="r", seed=0, step=1, extension="none", scale=None, window=None)
    facts |= dict(protocol="same_token")
    cells = []
    for length, mean in zip(LENGTHS, nats, strict=True):
        own = np.full(20, mean) + noise * (length == LENGTHS[0])
        cells.append(made_cell(facts | {"length": length}, own, np.ones(20)))
    return cells


@pytest.mark.parametrize(
    ("nats", "spread", "expected"),
    [
        ((3, 2, 1.5, 1), 0, LENGTHS[3]),
        ((3, 1.005, 1.002, 1), 0, LENGTHS[1]),
        ((1, 2, 3, 4), 0, LENGTHS[0]),
        ((1.005, 1.0, 1.0, 1.0), 1.0, LENGTHS[1]),  # within on average, and nobody knows
    ],
)
def test_the_effective_context_is_the_shortest_that_loses_nothing(nats, spread, expected):
    effective = protocols.find("effective")
    (found,) = effective.derived(curve(*nats, spread=spread))
    assert found.facts["length"] == expected and found.facts["protocol"] == "effective"
    cells = curve(*nats, spread=spread)
    bad = cells[0]._replace(nats=cells[0].nats * np.nan)
    lengths = [{c.facts["length"] for c in effective.derived(o)} for o in ([bad], [bad, *cells])]
    assert lengths == [set(), {expected}]


def test_a_derived_protocol_adds_the_protocol_it_needs(settings):
    said = protocols.mistakes(settings(protocols="effective,answers", stride=0))
    assert said == ["effective in protocols needs same_token: add it"]
    assert protocols.mistakes(settings(protocols="answers", stride=0)) == []  # which reads `last`


def ordered(documents=40):
    """A text of the task `ordered`, of L = 16 and 4 L."""
    task = variables.Variables(train_length=32, far=2.0, variant="ordered", gaps="octaves")
    drawn = list(task.draw("valid", documents, 0))
    longest = task.farthest
    tokens = np.concatenate([one.text for one in drawn])
    whole = dataclasses.replace(
        split([longest + 1] * documents, np.concatenate([one.answers for one in drawn])),
        tokens=tokens,
        gaps=np.concatenate([one.gaps for one in drawn]),
        chance=1 / 6,
        task="variables",
    )
    starts = np.arange(documents) * (longest + 1)
    return windows.Text(whole, np.arange(documents), starts, longest)


def asked_by_hand(read, reading):
    """The settings of each scored answer, one token after another."""
    for target in targets(reading):
        begin = read.split.starts[read.split.starts <= target][-1]
        name = read.split.tokens[target - 1] - variables.ASK
        values = {
            target - 1 - place: (read.split.tokens[place] - variables.SET) % 6
            for place in range(begin, target - 1)
            if read.split.tokens[place] >= variables.SET
            and (read.split.tokens[place] - variables.SET) // 6 == name
        }
        yield sorted(values.items()), read.split.tokens[target] - variables.VALUE


@pytest.mark.parametrize("length", [16, 32, 64])
def test_a_reader_without_order_takes_one_of_the_settings_it_sees(length):
    read = ordered()
    (reading,) = protocols.find("answers").readings(read, length, 16, 32)
    chances = []
    for (values, answer), place in zip(
        asked_by_hand(read, reading), np.flatnonzero(reading.scored()) % length, strict=True
    ):
        seen = [value for back, value in values if back <= place]
        chances.append(np.mean([value == answer for value in seen]) if seen else 1 / 6)
    assert reading.facts["orderless"] == pytest.approx(np.mean(chances))
    assert reading.facts["orderless"] < reading.facts["ceiling"]


def test_texts_of_other_tasks_have_no_order_to_tell():
    assert readings("answers", asked(), 64)[0].facts["orderless"] is None
