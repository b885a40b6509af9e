"""The protocol `copies`: where passages and their copies lie, what is scored, who reads them."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from measuring import split, text
from sizes import L

from posenc_jax.evaluation import losses, protocols, records, table, windows
from posenc_jax.evaluation.protocols import copies
from posenc_jax.plots import curves
from posenc_jax.runtime.errors import ConfigError

LENGTH = 1024
REACH = 300  # of the stub
CONTEXT = 6  # tokens that it compares


def long_text():
    return windows.choose(split([2300, 1100, 50, 1030]), LENGTH, per_document=2)


def tokens(reading):  # [W, length + 1]
    return reading.text.split.tokens[reading.starts[:, None] + np.arange(reading.length + 1)]


@pytest.mark.parametrize(
    ("length", "trained"), [(256, 128), (1024, 64), (1024, 512), (12_288, 8192), (32_768, 8192)]
)
def test_passages_and_copies_lie_apart_up_to_the_farthest_distance(length, trained):
    begins = copies.places(length, trained)
    assert max(begins) == length - 128 and min(begins) >= 128
    every = [(distance, begin) for distance, found in begins.items() for begin in found]
    spans = sorted(at for distance, begin in every for at in (begin, begin - distance))
    assert spans[0] >= 64 and spans[-1] + 64 == length + 1
    assert min(np.diff(spans)) >= 64 + 64


def test_distances_lie_on_both_sides_of_l():
    near, beyond = (128, 256, 512, 1024, 2048, 4096, 6144, 7168), (9216, 10_240, 12_160)
    begins = copies.places(12_288, 8192)
    assert list(begins) == [*near, *beyond]
    assert [len(found) for found in begins.values()] == [4] * len(near) + [4, 2, 1]
    assert all(max(found) > 10_000 for found in begins.values())


@pytest.mark.parametrize("length", [LENGTH, LENGTH * 3 // 4])
def test_a_copy_is_its_passage_a_distance_back_and_nothing_else_changes(length):
    read, begins = long_text(), copies.places(length, 256)
    found = {one.part: one for one in copies.protocol.readings(read, length, None, 256)}
    assert set(found) == {f"{p}{d}" for d in begins for p in ("", "unread-")}
    whole = tokens(found[f"unread-{max(begins)}"])
    ends = (read.starts + read.longest - length)[:, None] + np.arange(length + 1)
    np.testing.assert_array_equal(whole, read.split.tokens[ends])
    copied = np.zeros(length + 1, bool)
    for distance, of_distance in begins.items():
        one, unread = found[str(distance)], found[f"unread-{distance}"]
        now, scored = tokens(one), np.zeros((len(read.starts), length + 1), bool)
        for begin in of_distance:
            passage = now[:, begin : begin + 64]
            np.testing.assert_array_equal(passage, whole[:, begin : begin + 64])
            np.testing.assert_array_equal(passage, now[:, begin - distance :][:, :64])
            copied[begin - distance : begin - distance + 64] = True
            scored[:, begin + 16 : begin + 64] = True  # from the 17th token of the passage on
        assert one.token_hash == unread.token_hash and unread.unchanged is None
        for reading in (one, unread):
            np.testing.assert_array_equal(reading.scored(), scored[:, 1:])
        kept = reading.targets()[reading.scored()]
        np.testing.assert_array_equal(read.split.tokens[kept], whole[scored])
    now = tokens(found[str(distance)])
    np.testing.assert_array_equal(now[:, ~copied], whole[:, ~copied])
    assert len({one.text.hash for one in found.values()}) == 2  # two passes for each method


def test_a_changed_text_keeps_its_documents_and_their_groups():
    read = long_text()
    read = dataclasses.replace(
        read, split=dataclasses.replace(read.split, groups=np.array([7, 3, 9, 7]))
    )
    inner = windows.changed(read, 512, lambda rows: rows)
    np.testing.assert_array_equal(inner.units, read.units)
    np.testing.assert_array_equal(inner.split.digests, read.split.digests[read.documents])
    number = np.searchsorted(inner.split.starts, inner.starts, side="right") - 1
    np.testing.assert_array_equal(
        inner.documents[number], np.searchsorted([0, 1, 3], read.document)
    )


class Copying:
    """A reader that knows each target whose context was followed by it within its reach."""

    def __init__(self, model, tokens, tokens_per_call, **options):
        self.tokens = tokens

    def __call__(self, encoding, starts, length, last, *hooks):
        nats = np.full((len(starts), last), 2.0, np.float32)
        reach = min(REACH, encoding.window or length)
        for row, start in enumerate(starts):
            window, seen = self.tokens[start : start + length + 1].tolist(), {}
            for target in range(CONTEXT, length + 1):
                context = tuple(window[target - CONTEXT : target])
                back = target - seen.get(context, -length)
                column = target - 1 - (length - last)
                if column >= 0 and back < reach and window[target - back] == window[target]:
                    nats[row, column] = 0
                seen[context] = target
        return nats, nats == 0


@pytest.fixture
def measured(measure, monkeypatch):
    monkeypatch.setattr(losses, "Reader", Copying)
    options = dict(protocols="copies", extensions="none", multiples="32,64")
    return measure(read=long_text(), **options)


def test_a_reader_of_copies_knows_those_within_its_reach(measured):
    rows = [row for row in records.rows(measured) if row["length"] == LENGTH]
    for window in (None, L):
        nats = {row["part"]: row["nll"] for row in rows if row["window"] == window}
        assert {part for part in nats if part.isdigit()} == {"256", "384", "512", "896"}
        for part, nll in nats.items():
            near = part == "256" and window is None
            assert nll == (0.0 if near else 2.0), part
        assert len({r["token_hash"] for r in rows if r["part"] in ("384", "unread-384")}) == 1


def test_the_table_and_the_picture_have_the_passages_and_the_baseline(measured):
    lines = table.table(records.rows(measured)).splitlines()
    assert any("windows of 1024 tokens" in line for line in lines)
    words = [line.split() for line in lines]
    assert ["none", "0.000", *["2.000"] * 3] in words
    assert words.count(["unread", *["2.000"] * 4]) == 2
    panels = copies.protocol.picture(measured)
    assert panels is not None and panels.trained == [L] and list(panels.lines) == ["1,024 tokens"]
    drawn = [(one.name, one.listed, list(one.y)) for one in panels.lines["1,024 tokens"]]
    assert drawn == [
        ("none", True, [0, 2, 2, 2]),
        ("none", False, [2] * 4),
        ("window", True, [2] * 4),
        ("window", False, [2] * 4),
        ("unread: without a copy", True, []),
    ]


def test_an_interrupted_evaluation_is_drawn_as_far_as_it_goes(measured):
    for kept, expected in (("384", [384]), ("unread-384", []), ("unread-256", [])):
        some = [c for c in measured if c.facts["part"] in (kept, "unread-896")]
        panels = copies.protocol.picture([c for c in some if not c.facts["window"]])
        assert panels is not None
        read = [line for line in panels.lines["1,024 tokens"] if line.listed and line.method]
        assert [list(line.x) for line in read] == ([expected] if expected else [])
        curves.side_by_side(panels)


def test_lengths_without_room_are_refused_or_left_out():
    with pytest.raises(ConfigError, match=r"copies needs a length of 256 tokens or more"):
        copies.protocol.check([64, 255], None, 64)
    copies.protocol.check([64, 256], None, 64)
    assert copies.protocol.readings(text(), 64, None, L) == []


def test_few_passages_raise_a_warning():
    assert "scores 7 passages" in copies.protocol.warning(7, None)
    assert copies.protocol.warning(8, None) is None
    config = SimpleNamespace(last=0, stride=0)
    assert protocols.find("copies").wanted(copies.protocol.span(config, L, [LENGTH])) == 8
