"""Which tokens a protocol reads and scores."""

import numpy as np
import pytest
from measuring import LENGTHS, STRIDE, split, text

from posenc_jax.evaluation import windows
from posenc_jax.exits import ConfigError, DataError


def test_a_stretch_is_of_whole_windows_within_a_document_long_enough():
    source = split()
    chosen = windows.choose(source, 64, documents=10, per_document=10)
    assert list(chosen.windows) == [1, 3, 1]  # 70, 200 and 65; 64 is one too short
    assert list(chosen.starts) == [0, 90, 290]
    few = windows.choose(source, 64, documents=2, per_document=2)
    assert list(few.windows) == [1, 2]


def test_too_few_documents_say_how_far_one_may_go():
    with pytest.raises(DataError, match="1 of 5 documents have the 101 .* Up to length 69"):
        text(100, per_document=1)


def everything(chosen, last):
    """Where the scored targets have to be, by loops."""
    return [
        start + window * chosen.longest + place + 1
        for start, count in zip(chosen.starts, chosen.windows, strict=True)
        for window in range(count)
        for place in range(chosen.longest - last, chosen.longest)
    ]


@pytest.mark.parametrize("length", LENGTHS)
def test_every_protocol_scores_the_same_targets_each_once_at_every_length(length):
    chosen = text()
    for plan, last in [
        (windows.nonoverlap(chosen, length), 64),
        (windows.same_token(chosen, length, 3), 3),
        *([(windows.sliding(chosen, length, STRIDE), 64)] if length >= STRIDE else []),
    ]:
        scored = plan.targets()[plan.scored()]
        assert sorted(scored) == everything(chosen, last)
        assert np.all(plan.starts >= chosen.starts[plan.document])  # no window crosses a document
        ends = (chosen.starts + chosen.windows * 64)[plan.document]
        assert np.all(plan.starts + length <= ends)


def test_context_is_what_each_protocol_says():
    chosen = text()
    plan = windows.sliding(chosen, 32, 8)
    for first, start, document in zip(plan.first, plan.starts, plan.document, strict=True):
        assert first == (0 if start == chosen.starts[document] else 32 - 8)
    plan = windows.same_token(chosen, 16, 4)
    np.testing.assert_array_equal(plan.first, 12)
    ends = [
        s + 64 * (i + 1)
        for s, n in zip(chosen.starts, chosen.windows, strict=True)
        for i in range(n)
    ]
    np.testing.assert_array_equal(plan.starts + 16, ends)


def test_the_hash_is_of_the_scored_targets():
    assert text().token_hash(3) == text().token_hash(3)
    assert len({text().token_hash(3), text().token_hash(4), text(32).token_hash(3)}) == 3
    other = text()
    other.split.tokens[64] += 1  # the last target of the first window
    assert other.token_hash(1) != text().token_hash(1)
    other = text()
    other.split.tokens[0] += 1  # context, no target
    assert other.token_hash(64) == text().token_hash(64) and other.hash != text().hash


@pytest.mark.parametrize(
    ("protocol", "lengths", "stride", "last", "message"),
    [
        ("nonoverlap", [24, 64], 8, 1, "length 24 does not divide the longest one, 64"),
        ("same_token", [16, 64], 8, 5, r"last must be at most .* 16 / 4 = 4, .* got 5"),
        ("sliding", [16, 64], 7, 1, "stride must divide every length"),
        ("sliding", [32, 64], 48, 1, "stride must divide every length"),
        ("nonoverlap", [0, 64], 8, 1, "every length must be at least 2"),
        ("sliding", [16, 64], 65, 1, "stride must divide every length"),
    ],
)
def test_targets_that_would_differ_between_lengths_are_refused(
    protocol, lengths, stride, last, message
):
    with pytest.raises(ConfigError, match=message):
        windows.check([protocol], lengths, stride, last)
    windows.check(["position"], [16, 64], stride, last)  # each rule is of its protocol
