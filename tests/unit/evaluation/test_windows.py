"""Tokens that a protocol reads and scores."""

from types import SimpleNamespace

import numpy as np
import pytest
from measuring import LENGTHS, STRIDE, split, text
from sizes import L

from posenc_jax.evaluation import protocols, windows
from posenc_jax.evaluation.check import lengths_of
from posenc_jax.runtime.errors import ConfigError, DataError


def lies(chosen):
    """By document: where its longest windows begin, from its beginning."""
    places = chosen.starts - chosen.split.starts[chosen.document]
    return {int(n): places[chosen.document == n].tolist() for n in chosen.documents}


def test_windows_lie_within_documents_long_enough():
    source = split()
    options = dict(documents=10, per_document=10)
    chosen = windows.choose(source, 64, **options, spread=False)
    assert lies(chosen) == {0: [0], 2: [0, 64, 128], 3: [0]}  # 64 is one too short
    assert lies(windows.choose(source, 64, **options)) == {0: [2], 2: [1, 67, 133], 3: [0]}
    few = windows.choose(source, 64, documents=2, per_document=2)
    assert lies(few) == {0: [2], 2: [17, 117]}  # 199 - 128 = 71 targets are left over


def test_windows_are_as_many_as_wanted_where_the_text_has_them():
    source = split([1000, 100, 4000, 70] + [66] * 100)
    for wanted in (1, 49, 60, 110, 160, 10_000):
        chosen = windows.choose(source, 64, wanted=wanted)
        counts = [len(places) for places in lies(chosen).values()]
        room = (source.lengths[chosen.documents] - 1) // 64
        assert len(counts) >= 50 and sum(counts) >= min(wanted, 15 + 1 + 62 + 101)
        most = max(counts)
        np.testing.assert_array_equal(counts, np.minimum(room, most))  # the same of each
        assert most == 1 or sum(np.minimum(room, most - 1)) < wanted  # and no more than it takes
        for number, places in lies(chosen).items():
            gaps = np.diff([-64, *places, source.lengths[number] - 1])  # ends to beginnings
            assert min(gaps[1:-1], default=64) >= 64 and gaps[-1] >= 64
            assert gaps[0] - 64 <= (source.lengths[number] - 1) / (2 * len(places))


def test_documents_that_may_not_be_read_are_not():
    kept = np.array([True, True, False, True, True])
    assert set(lies(windows.choose(split(), 64, kept=kept))) == {0, 3}


def test_too_few_documents_say_how_far_one_may_go():
    with pytest.raises(DataError, match="1 of 5 documents have the 101 .* Up to length 69"):
        text(100, per_document=1)


def planned(name, chosen, length, span=None):
    return protocols.find(name).plan(chosen, length, span)


def everything(chosen, last):
    """Places of the scored targets, by loops."""
    return [
        start + place + 1
        for start in chosen.starts
        for place in range(chosen.longest - last, chosen.longest)
    ]


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("length", [*LENGTHS, 3 * L])
def test_every_protocol_scores_the_same_targets_each_once_at_every_length(length, spread):
    chosen = text(per_document=2, spread=spread)
    config, found = SimpleNamespace(stride=STRIDE, last=3), []
    for protocol in protocols.every():
        span = protocol.span(config, L, LENGTHS)
        if protocol.value == "accuracy":
            continue  # which scores the answers among them, in test_answers.py
        if type(protocol).plan is protocols.Protocol.plan:
            continue  # which has readings alone, in test_copies.py
        if protocol.name == "nonoverlap" and chosen.longest % length:
            continue  # which refuses this length
        plan = protocol.plan(chosen, length, span)
        if plan is None or type(protocol).text is not protocols.Protocol.text:
            continue  # which reads another length, or a text of its own
        found.append(protocol.name)
        scored = sorted(plan.targets()[plan.scored()])
        whole = protocol.plan(chosen, chosen.longest, span)
        assert scored == sorted(whole.targets()[whole.scored()]) and len(set(scored)) == len(scored)
        assert plan.token_hash == whole.token_hash
        last = {"same_token": 3, "nonoverlap": 64, "sliding": 64}.get(protocol.name)
        assert last is None or scored == everything(chosen, last)
        begins, ends = (chosen.split.starts[chosen.documents + i][plan.document] for i in (0, 1))
        assert np.all(plan.starts >= begins)  # no window crosses a document
        assert np.all(plan.starts + length < ends)
    assert {"same_token", "sliding"} <= set(found) or length < STRIDE


def test_context_is_what_each_protocol_says():
    chosen = text()
    plan = planned("sliding", chosen, 32, 8)
    begins = chosen.split.starts[chosen.documents]
    for first, start, document in zip(plan.first, plan.starts, plan.document, strict=True):
        assert first == (0 if start == begins[document] else 32 - 8)
    plan = planned("same_token", chosen, 16, 4)
    np.testing.assert_array_equal(plan.first, 12)
    np.testing.assert_array_equal(plan.starts + 16, chosen.starts + 64)


def test_sliding_windows_read_tokens_before_the_longest_window():
    chosen = text(per_document=1, spread=True)
    before = chosen.starts - chosen.split.starts[chosen.document]
    assert list(before) == [2, 67, 0]
    for plan, firsts in [
        (planned("sliding", chosen, 32, 8), [[0, *[24] * 4], [24] * 8, [0, *[24] * 4]]),
        (planned("sliding", chosen, 64, 64), [[0], [0], [0]]),
        (planned("sliding", chosen, 64, 32), [[0], [32] * 2, [0]]),
    ]:
        found = [plan.first[plan.document == n].tolist() for n in range(3)]
        assert found == firsts


def test_the_hash_is_of_the_scored_targets():
    def of_last(chosen, count):
        return planned("same_token", chosen, chosen.longest, count).token_hash

    assert of_last(text(), 3) == of_last(text(), 3)
    assert len({of_last(text(), 3), of_last(text(), 4), of_last(text(32), 3)}) == 3
    other = text()
    other.split.tokens[64] += 1  # the last target of the first window
    assert of_last(other, 1) != of_last(text(), 1)
    other = text()
    other.split.tokens[0] += 1  # context, no target
    assert of_last(other, 64) == of_last(text(), 64) and other.hash != text().hash


def check(name, lengths, stride, last):
    config = SimpleNamespace(stride=stride, last=last)
    protocol = protocols.find(name)
    protocol.check(lengths, protocol.span(config, 16, lengths), 16)


@pytest.mark.parametrize(
    ("protocol", "lengths", "stride", "last", "message"),
    [
        ("nonoverlap", [24, 64], 8, 1, "length 24 does not divide the longest one, 64"),
        ("same_token", [16, 64], 8, 5, "last must be at most 4: .* L = 16, .* got 5"),
        ("same_token", [32, 64], 8, 9, "last must be at most 8: .* 32, .* got 9"),
        ("same_token", [2, 64], 8, 3, "last must be at most 2: .* got 3"),
        ("sliding", [16, 64], 7, 1, "stride must divide every length"),
        ("sliding", [32, 64], 48, 1, "stride must divide every length"),
        ("sliding", [16, 64], 65, 1, "stride must divide every length"),
    ],
)
def test_targets_that_would_differ_between_lengths_are_refused(
    protocol, lengths, stride, last, message
):
    with pytest.raises(ConfigError, match=message):
        check(protocol, lengths, stride, last)
    check("position", [16, 64], stride, last)  # each rule is of its protocol
    for other in ("same_token", "answers", "gap", "order"):  # of targets with a common end
        check(other, [16, 18, 20, 24], 8, 4)


def test_last_does_not_depend_on_lengths_below_a_quarter_of_l():
    check("same_token", [4, 16, 18, 20, 24], 0, 4)
    plan = planned("same_token", text(), 4, 4)
    assert plan.scored().all() and (plan.starts + 4 == text().starts + 64).all()


def test_lengths_in_tokens_are_instead_of_multiples_and_at_least_two(settings):
    config = settings(multiples="0.25,0.5,1,2,4,8", lengths="16,32,64")
    assert lengths_of(config, L) == [16, 32, 64]
    with pytest.raises(ConfigError, match="every length must be at least 2"):
        lengths_of(settings(lengths="1,64"), L)
