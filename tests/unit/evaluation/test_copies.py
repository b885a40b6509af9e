"""The protocol `copies`: where passages and their copies lie, what is scored, who reads them, and
how far a method reads."""

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
CONTEXT = 6  # tokens that it compares


def long_text(longest=LENGTH):
    sizes = [2 * longest + 250, longest + 80, 50, longest + 6]
    return windows.choose(split(sizes), longest, per_document=2)


def tokens(reading):  # [W, length + 1]
    return reading.text.split.tokens[reading.starts[:, None] + np.arange(reading.length + 1)]


ROWS = [(256, 128), (1024, 64), (1024, 512), (8192, 8192), (12_288, 8192), (32_768, 1024)]


@pytest.mark.parametrize(("length", "trained"), ROWS)
def test_passages_and_their_far_or_near_copies_lie_apart(length, trained):
    begins = copies.places(length, trained)
    assert max(begins) == length - 128 and min(begins) >= 128
    every = [(distance, begin) for distance, found in begins.items() for begin in found]
    for near in (False, True):
        backs = [(begin, begin - (128 if near else distance)) for distance, begin in every]
        spans = sorted(at for both in backs for at in both)
        assert spans[0] >= 64 and spans[-1] + 64 <= length + 1
        assert min(np.diff(spans)) >= 64 + 64


def test_distances_lie_on_both_sides_of_l():
    near, beyond = (128, 256, 512, 1024, 2048, 4096), (9216, 10_240, 12_160)
    near += (5120, 5632, 6144, 6656, 7168, 7680)
    begins = copies.places(12_288, 8192)
    assert list(begins) == [*near, *beyond]
    assert [len(found) for found in begins.values()] == [3, 4, 4, 4, 3, *[2] * 7, 1, 1, 1]
    assert all(max(found) > 8_000 for found in begins.values())
    inside = copies.places(8192, 8192)
    assert list(inside) == [*near, 8064] and min(map(len, inside.values())) == 1


@pytest.mark.parametrize("length", [LENGTH, LENGTH * 3 // 4])
def test_a_copy_is_its_passage_a_distance_back_and_nothing_else_changes(length):
    read, begins = long_text(), copies.places(length, 256)
    found = {one.part: one for one in copies.protocol.readings(read, length, None, 256)}
    assert set(found) == {f"{p}{d}" for d in begins for p in ("", "near-", "unread-")}
    whole = tokens(found[f"unread-{max(begins)}"])
    ends = (read.starts + read.longest - length)[:, None] + np.arange(length + 1)
    np.testing.assert_array_equal(whole, read.split.tokens[ends])
    copied = {prefix: np.zeros(length + 1, bool) for prefix in ("", "near-")}
    for distance, of_distance in begins.items():
        unread, scored = found[f"unread-{distance}"], np.zeros((len(read.starts), length + 1), bool)
        for begin in of_distance:
            scored[:, begin + 16 : begin + 64] = True  # from the 17th token of the passage on
        for prefix, back in (("", distance), ("near-", 128)):
            one = found[f"{prefix}{distance}"]
            for begin in of_distance:
                for at in (begin, begin - back):
                    passage = tokens(one)[:, at : at + 64]
                    np.testing.assert_array_equal(passage, whole[:, begin : begin + 64])
                copied[prefix][begin - back : begin - back + 64] = True
            assert one.token_hash == unread.token_hash and unread.unchanged is None
            np.testing.assert_array_equal(one.scored(), scored[:, 1:])
        np.testing.assert_array_equal(unread.scored(), scored[:, 1:])
        kept = unread.targets()[unread.scored()]
        np.testing.assert_array_equal(read.split.tokens[kept], whole[scored])
    for prefix, changed in copied.items():
        now = tokens(found[f"{prefix}{distance}"])
        np.testing.assert_array_equal(now[:, ~changed], whole[:, ~changed])
    passes = {one.text.hash for one in found.values()}
    assert len(passes) == 3 and read.hash in passes  # the unchanged text is that of same_token


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

    reach = 300

    def __init__(self, model, tokens, tokens_per_call, **options):
        self.tokens = tokens

    def __call__(self, encoding, starts, length, last, *hooks):
        nats = np.full((len(starts), last), 2.0, np.float32)
        reach = min(self.reach, encoding.window or length)
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
        assert {part for part in nats if part.isdigit()} == {"128", "512", "896"}
        for part, nll in nats.items():
            near = part == "128" or part.startswith("near-")
            assert nll == (0.0 if near and window is None else 2.0), part
        assert len({r["token_hash"] for r in rows if r["part"].endswith("512")}) == 1


def test_the_table_and_the_picture_have_the_share_kept_of_each_method(measured):
    lines = table.table(records.rows(measured)).splitlines()
    assert any("windows of 1024 tokens" in line for line in lines)
    words = [line.split() for line in lines]
    assert ["none", "0.000", "2.000", "2.000"] in words
    assert words.count(["near", *["0.000"] * 3]) == 1 and words.count(["near", *["2.000"] * 3]) == 1
    assert words.count(["unread", *["2.000"] * 3]) == 2
    for first in ("share kept", "from", "to"):
        assert [*first.split(), "1.00", "0.00", "0.00"] in words
    assert ["share", "kept", "-", "-", "-"] in words
    assert "none 128, window – of L = 16" in " ".join(" ".join(lines).split())
    panels = copies.protocol.picture(measured)
    assert panels is not None and panels.trained == [L] and list(panels.lines) == ["1,024 tokens"]
    drawn = [(one.name, list(one.x), list(one.y)) for one in panels.lines["1,024 tokens"]]
    assert drawn == [("none", [128, 512, 896], [1, 0, 0]), ("one half", [128, 896], [0.5, 0.5])]
    curves.side_by_side(panels)


def test_rows_without_a_near_copy_have_no_share(measured):
    older = [cell for cell in measured if not cell.facts["part"].startswith("near-")]
    assert {row["share"] for row in records.rows(older)} == {None}
    assert ["share", "kept", "-", "-", "-"] in [
        line.split() for line in table.table(records.rows(older)).splitlines()
    ]
    assert copies.protocol.picture(older) is None
    interrupted = [cell for cell in measured if cell.facts["part"] != "unread-512"]
    panels = copies.protocol.picture(interrupted)
    assert panels is not None and list(panels.lines["1,024 tokens"][0].x) == [128, 896]


@pytest.mark.parametrize(("window", "usable"), [(1024, 768), (1025, 1024)])
def test_a_window_reads_to_the_farthest_distance_below_it(
    measure, subject, monkeypatch, window, usable
):
    monkeypatch.setattr(losses, "Reader", Copying)
    monkeypatch.setattr(Copying, "reach", 4096)
    found = measure(
        subject(trained=64),
        long_text(2048),
        protocols="copies",
        extensions=f"window:size={window}",
        lengths="2048",
        multiples="",
        window=False,
    )
    assert copies.usable_length(records.rows(found)) == usable


def test_usable_length_ends_at_the_first_distance_that_fails():
    def reach(*ends):
        rows = [{"part": str(128 << n), "share_low": low} for n, low in enumerate(ends)]
        return copies.usable_length([{"part": "near-128", "share_low": None}, *rows[::-1]])

    assert reach(0.9, 0.51, 0.8) == 512
    assert reach(0.9, 0.5, 0.8) == reach(0.9, None, 0.8) == reach(0.9, np.nan, 0.8) == 128
    assert reach(0.4, 0.9) == reach() == 0


def test_a_share_is_one_of_the_near_saving_and_none_without_it():
    unread, near, sizes = np.array([[30.0, 40, 35, 32], [10, 12, 9, 11], [9, 9, 8, 9]])
    for share in (0, 0.5, 1):
        far = unread - share * (unread - near)
        assert copies.share_kept(sizes, far, near, unread)[:3] == pytest.approx((share,) * 3)
    one = copies.share_kept(sizes, unread * [1, 1, 1, 0.5], near, unread)
    assert one.mean == pytest.approx(16 / 95)  # of sums, not a mean of shares
    assert copies.share_kept(sizes, near, unread, near) is None  # the near copy costs
    assert copies.share_kept(sizes, near, unread - [5, -5, 4, -3], unread) is None
    assert copies.share_kept(sizes, far, near * np.nan, unread) is None


def test_the_interval_of_a_share_covers_the_true_one():
    rng, covered = np.random.default_rng(0), []
    for share in np.repeat([0.5, 0.9], 500):
        near, far = rng.normal(0, 0.6, (2, 6))
        sizes = rng.integers(1, 3, 6)  # windows of a document
        saved = sizes * (3 + rng.normal(0, 0.5, 6)) + near
        found = copies.share_kept(sizes, -(share * saved) + far, -saved, np.zeros(6))
        covered.append(found is not None and found.low <= share <= found.high)
    assert 0.94 <= np.mean(covered) <= 0.98


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
