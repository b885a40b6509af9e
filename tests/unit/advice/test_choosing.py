"""Which methods are screened, and which of them is chosen."""

import zlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from posenc_jax.advice import choosing, page
from posenc_jax.advice.choosing import DEAR, FAMILIES, YARN, following, needed
from posenc_jax.advice.measuring import COPIES, FAR, NEAR, TEXT, Finding

L, N, PROMPTS = 100, 400, (10, 100)
BACK = (16, 100, 200, 384)


def made(method, kept, cost=0.0, texts=10, noise=0.001, far=0.0):
    """A finding whose copies keep such shares, and whose prompts cost so much."""
    rng = np.random.default_rng(zlib.crc32(method.encode()))
    tokens, sums = np.full(texts, 50.0), {}
    for back, share in zip(BACK, kept, strict=True):
        none = tokens * (3 + 0.1 * rng.random(texts))
        near = none - tokens * (2 + 0.1 * rng.random(texts))
        moved = share + 0.02 * rng.standard_normal(texts)
        sums[FAR, COPIES, N, f"unread-{back}"] = none, tokens
        sums[FAR, COPIES, N, f"near-{back}"] = near, tokens
        sums[FAR, COPIES, N, f"{back}"] = none - moved * (none - near), tokens
    hard = tokens * (2 + np.arange(texts) / texts)
    for length in PROMPTS:
        sums[NEAR, TEXT, length, ""] = hard + tokens * (cost + noise * rng.random(texts)), tokens
    sums[FAR, TEXT, N, ""] = hard - tokens * far, tokens
    sums[FAR, TEXT, L, ""] = hard, tokens
    return Finding(method, N, sums)


READS, HALF = (1.0, 0.95, 0.9, 0.8), (1.0, 0.8, 0.6, 0.1)
PLAIN = made("none", (1.0, 0.3, 0.0, 0.0))


def test_reach_is_where_one_half_is_left_and_usable_where_it_clearly_is():
    half = made("half", HALF)
    assert half.reach == pytest.approx(200 + 184 * 0.1 / 0.5, abs=8) and half.usable == 200
    reads = made("reads", READS)
    assert reads.reach == reads.usable == N and reads.reads and not half.reads
    barely = made("barely", (1.0, 0.9, 0.51, 0.51))
    assert barely.reads and barely.usable < N
    assert made("nothing", (0.2, 0.1, 0.0, 0.0)).reach == 0
    broken = made("broken", (1.0, 0.9, 0.8, 3.0))
    none, near = (broken.sums[FAR, COPIES, N, f"{part}-384"][0] for part in ("unread", "near"))
    near += 0.9 * (none - near)  # a tenth is left of what a near copy saves elsewhere
    assert broken.kept[384] == 0 and not broken.reads
    assert made("long", READS, far=0.25).gain(PLAIN, L).mean == pytest.approx(0.25)


def screened(reads_from, families=FAMILIES, need=4.0):
    """Methods in the order of screening, where a family reads N from a factor on."""
    tried, order = {}, []
    while (asked := following(tried, need, families)) is not None:
        family, factor = asked
        method = family.method(factor)
        order.append(method)
        kept = READS if factor >= reads_from.get(family, 1e9) else HALF
        tried.setdefault(family, {})[factor] = made(method, kept)
    return order


def test_screening_finds_the_smallest_factor_and_others_start_from_it():
    one, flat, ntk, grouped = FAMILIES
    order = screened({one: 2.5, flat: 2.9, ntk: 6.0, grouped: 1.0})
    assert order[:3] == ["yarn:4", "yarn:3", "yarn:2.2"]  # the last does not read N
    assert order[3:5] == ["yarn:3:attention_factor=1", "ntk:4.5"]
    assert 7 < float(order[5].removeprefix("ntk:")) < 8  # by what the first lacks
    assert order[6:] == ["self_extend:group=5"]


def test_screening_ends_where_nothing_reads():
    order = screened({}, FAMILIES[:3])
    assert len(order) == 3 * choosing.TRIES and len(set(order)) == len(order)
    factors = [float(method.removeprefix("yarn:")) for method in order[:3]]
    assert factors[0] == 4 and all(1.2 < b / a <= 2 for a, b in pairwise(factors))


def test_the_first_factor_brings_what_is_read_to_n():
    plain = made("none", (1.0, 0.5, 0.0, 0.0))
    assert needed(plain, L, 1.0) == pytest.approx(N / plain.reach)
    assert needed(plain, L / 2, 2.0) == pytest.approx(2 * N / plain.reach)  # its own extension's
    assert needed(made("none", (0.2, 0, 0, 0)), L, 1.0) == 2 * N / L


def test_families_are_those_that_fit_and_the_models_own():
    assert choosing.families(["yarn", "ntk"], "none") == [
        family for family in FAMILIES if family.word.startswith(("yarn", "ntk"))
    ]
    own = choosing.families(["yarn", "llama3"], "llama3")
    assert own[-1].method(8.0) == "llama3:8" and YARN in own


def test_finalists_are_the_cheapest_the_safest_and_the_engines():
    dear = made("dear", (1.0, 1.0, 1.0, 1.0), 0.3)
    some = [made(f"m{i}", READS, 0.01 * i) for i in range(5)]
    ranked = choosing.ordered([dear, made("half", HALF), *some[::-1]], PLAIN, PROMPTS)
    assert [one.method for one in ranked] == ["m0", "m1", "m2", "m3", "m4", "dear", "half"]
    names = [one.method for one in ranked]

    def finals(right, everywhere=()):
        return [one.method for one in choosing.finalists(ranked, right, everywhere)]

    assert finals(names) == ["m0", "dear", "m1"]
    assert finals(names, ["half", "m4"]) == ["m0", "m4", "dear"]
    assert finals(["m3"], ["m3", "m4"]) == ["m3", "m0", "m1"]
    assert [one.method for one in choosing.finalists(ranked[-1:], [], [])] == ["half"]


def choose(*finals, right=None, plain=PLAIN):
    names = [one.method for one in finals] if right is None else right
    return choosing.choose([plain, *finals], PROMPTS, names)


def test_the_cheapest_that_reads_is_chosen_and_ties_are_named():
    cheap, same, dear = made("cheap", READS), made("same", READS, 1e-5), made("dear", READS, 0.2)
    choice = choose(dear, same, cheap, made("half", HALF, -1.0))
    assert {choice.method, *choice.ties} == {"cheap", "same"}
    assert choose(dear, cheap, right=["dear"]).method == "dear"
    assert choose(dear, right=[]) is None
    assert choose(dear, right=[], plain=made("none", READS)).method == "none"
    none = choose(made("half", HALF), made("less", (1.0, 0.3, 0.1, 0.0)))
    assert none.method is None and none.finding.method == "half"


def claim(finding, *screened, plain=PLAIN):
    return page.claim(choose(finding, plain=plain), plain, PROMPTS, [plain, *screened])


def test_the_first_sentence_names_the_price_and_a_cheaper_method():
    dear, cheap = made("yarn:4", READS, 0.2), made("yarn:2", HALF, 0.02, texts=2)
    few = made("none", (1.0, 0.3, 0, 0), texts=2)
    said = page.claim(choose(dear), PLAIN, PROMPTS, [few, cheap])
    assert said.startswith(
        "Set yarn:4: it reads 400 tokens; it costs every prompt, in nats per token: 0.200 [0."
    )
    assert f"yarn:2 costs at most 0.02 and reaches {cheap.reach} (2 documents)" in said
    assert said.endswith("Over 10 documents.")
    assert "yarn:2" not in claim(made("yarn:3", READS, DEAR / 2), made("yarn:2", HALF))
    plain = made("none", READS)
    assert claim(made("yarn:2", READS), plain=plain).startswith("Nothing is needed: without an")
    half = claim(made("yarn:2", HALF))
    assert half.startswith(
        "No method reads all of 400 tokens, so none is advised; yarn:2 comes near"
    )
    assert "near copy at 384 tokens back, where it keeps least, and clearly reads to 200" in half


def test_few_texts_and_one_text_are_provisional():
    noisy = made("yarn:3", (1.0, 0.95, 0.9, 0.6), texts=2, noise=0.1)
    plain = made("none", (1.0, 0.3, 0, 0), texts=2)
    said = page.claim(choose(noisy, plain=plain), plain, PROMPTS, [plain])
    assert said.startswith("2 documents are too few to tell: yarn:3 keeps 0.")
    assert said.endswith("Provisional, over 2 documents.")
    cut, beside = (replace(one, kind="stretch") for one in (made("yarn:2", READS), PLAIN))
    said = page.claim(choose(cut, plain=beside), beside, PROMPTS, [beside])
    assert said.endswith("Provisional, over 10 stretches of 1 document.")


def test_a_loss_that_is_not_finite_keeps_nothing():
    broken = made("yarn:2", READS)
    far, tokens = broken.sums[FAR, COPIES, N, "200"]
    sums = broken.sums | {(FAR, COPIES, N, "200"): (far + np.inf, tokens)}
    assert replace(broken, sums=sums).least == 0.0
