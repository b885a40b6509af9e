"""Mistakes that libraries really had are named, two at once are not named wrongly."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from conformance import mistakes, reference
from conformance.checking import check, load
from conformance.misreading import FLAWS, misread
from conformance.wrong_yarn import RAMP, ramped


def found(subject, function):
    """The sentences of a function that fails."""
    called = [result for result in check(load(subject), function) if not result.skipped]
    assert not all(result.passes for result in called)
    return mistakes.explain(subject, called)


# YaRN as libraries had it: their arithmetic, called as the subject is


def ramp_ends(head_dim, base, train_length, beta_fast, beta_slow, longest):
    """Rounded outwards, and clamped to 0 and `longest`."""
    low, high = (
        head_dim * math.log(train_length / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (beta_fast, beta_slow)
    )
    return max(math.floor(low), 0), min(math.ceil(high), longest)


def blended(head_dim, base, scale, ends, share_of_scaled):
    theta = base ** -(np.arange(0, head_dim, 2) / head_dim)
    low, high = ends
    ramp = np.clip((np.arange(head_dim // 2) - low) / max(high - low, 1e-3), 0, 1)
    share = share_of_scaled(ramp)
    return theta / scale * share + theta * (1 - share)


def own_factor(scale):
    return 0.1 * math.log(scale) + 1 if scale > 1 else 1.0


def litgpt(head_dim, base, train_length, scale, beta_fast, beta_slow):
    """0.5.13: the ramp is reversed, and clamped to the last pair."""
    ends = ramp_ends(head_dim, base, train_length, beta_fast, beta_slow, head_dim // 2 - 1)
    return blended(head_dim, base, scale, ends, lambda ramp: 1 - ramp), own_factor(scale)


def olmo_core(head_dim, base, train_length, scale, beta_fast, beta_slow):
    """3.0.0: clamped to the last pair."""
    ends = ramp_ends(head_dim, base, train_length, beta_fast, beta_slow, head_dim // 2 - 1)
    return blended(head_dim, base, scale, ends, lambda ramp: ramp), own_factor(scale)


def levanter(head_dim, base, train_length, scale, beta_fast, beta_slow):
    """1.2.dev1644: half of the dims, positions divided too, and a square root."""
    pairs = head_dim // 2
    low, high = ramp_ends(pairs, base, train_length, beta_fast, beta_slow, pairs - 1)
    inv_freq = blended(head_dim, base, scale, (low, max(high, low + 1)), lambda ramp: ramp) / scale
    return inv_freq, math.sqrt(own_factor(scale))


def factor_of(factor):
    """The right frequencies with a library's attention factor, of s and the given one."""

    def yarn(head_dim, base, train_length, scale, beta_fast, beta_slow, truncate, attention_factor):
        options = (beta_fast, beta_slow, truncate)
        right = reference.yarn(head_dim, base, train_length, scale, *options)
        return right["inv_freq"], factor(scale, attention_factor)

    return yarn


LAST, REVERSED, HALF, TWICE = (RAMP[name] for name in ("clamped", "reversed", "half", "twice"))


@pytest.mark.parametrize(
    ("library", "sentences"),
    [
        (litgpt, [f"inv_freq: {REVERSED}; and {LAST}"]),
        (olmo_core, [f"inv_freq: {LAST}"]),
        (
            levanter,
            [
                f"inv_freq: {HALF}; and {TWICE}",
                "attention_factor: it is the square root, sqrt(0.1 ln s + 1)",
            ],
        ),
        # vLLM before its change 48351, mlx-lm 0.32.2
        (
            factor_of(lambda scale, given: own_factor(scale)),
            ["attention_factor: a given factor is ignored"],
        ),
        # SGLang before its change 33558
        (
            factor_of(lambda scale, given: own_factor(scale) * (given or 1)),
            ["attention_factor: a given factor is multiplied by YaRN's own"],
        ),
        # TensorRT-LLM before its change 16379
        (
            factor_of(lambda scale, given: 0.1 * (given or 1) * math.log(scale) + 1),
            ["attention_factor: a given factor a becomes 0.1 a ln s + 1"],
        ),
        # TeleChat3 in vLLM
        (
            factor_of(lambda scale, given: given or 0.07 * math.log(scale) + 1),
            ["attention_factor: the coefficient is 0.07"],
        ),
        (
            factor_of(lambda scale, given: given or 0.1 * math.log2(scale) + 1),
            ["attention_factor: the logarithm has base 2"],
        ),
        (
            factor_of(lambda scale, given: given or own_factor(scale) ** 2),
            ["attention_factor: the attention factor is multiplied by itself"],
        ),
    ],
)
def test_what_libraries_had_is_named(library, sentences):
    lines = found("yarn", library)
    assert len(lines) == len(sentences)
    assert all(map(str.startswith, lines, sentences)), lines


# Configurations, as libraries read them


def reader(*flaws):
    def read(config, length=None, layer_type="full_attention"):
        made = misread(flaws, config, length, layer_type)
        return {name: made[name] for name in ("inv_freq", "attention_factor", "logit_factor")}

    return read


NAMED = [name for name in FLAWS if name != "integer"]  # where it stops there are no numbers


@pytest.mark.parametrize("flaw", NAMED)
def test_a_misread_configuration_gets_the_sentence_of_its_flaw(flaw):
    (line,) = found("configuration", reader(flaw))
    assert line == FLAWS[flaw].sentence


@pytest.mark.sampled
@pytest.mark.parametrize("flaws", [*itertools.combinations(NAMED, 2)], ids=str)
def test_two_flaws_are_not_named_wrongly(flaws):
    """Those named are the two, or one that hides the other, or give the same numbers as the two."""
    (line,) = found("configuration", reader(*flaws))
    named = [name for name in FLAWS if FLAWS[name].sentence in line]
    same = check(load("configuration"), reader(*flaws))
    for ours, theirs in zip(same, check(load("configuration"), reader(*named)), strict=True):
        if not set(named) <= set(flaws):
            for name, got in ours.got.items():
                np.testing.assert_allclose(got, theirs.got[name], rtol=1e-5)


@pytest.mark.parametrize("chosen", [*itertools.combinations(RAMP, 2)], ids=str)
def test_two_mistakes_in_a_ramp_are_not_named_wrongly(chosen):
    def yarn(**inputs):
        right = reference.yarn(**inputs)
        made = ramped(chosen, **inputs) if inputs["ramp"] == "dims" else right["inv_freq"]
        return made, right["attention_factor"]

    if chosen == ("half", "dims"):  # which give the right numbers together
        return
    (line,) = found("yarn", yarn)
    named = [name for name in RAMP if RAMP[name] in line]
    for result in check(load("yarn"), yarn):
        inputs = result.case.inputs
        if not set(named) <= set(chosen) and inputs["ramp"] == "dims":
            expected = ramped(named, **inputs)
            np.testing.assert_allclose(result.got["inv_freq"], expected, rtol=1e-5)


def test_a_mistake_beside_another_convention_is_named():
    def turns(head_dim, base, train_length, scale):
        right = reference.yarn(head_dim, base, train_length, scale, ramp="rotations")
        return right["inv_freq"], 1 + 0.1 * math.log10(scale)

    assert found("yarn", turns) == ["attention_factor: the logarithm has base 10"]


def test_a_number_a_little_off_is_not_said_to_be_rounded():
    assert found("abf", lambda head_dim, base: reference.abf(head_dim, base + 10)) == []


def test_a_reader_without_kinds_of_layers_is_checked_in_those_that_see_everything():
    def reader(config, length=None):
        return reference.configuration(config, length)["inv_freq"] * 2

    skipped = [result for result in check(load("configuration"), reader) if result.skipped]
    assert all("layer_type" in result.skipped for result in skipped) and len(skipped) == 5


def test_the_formula_of_the_paper_and_other_conventions_pass():
    """A ramp over turns, and a factor on the logits, are no mistakes."""

    def turns(head_dim, base, train_length, scale, beta_fast, beta_slow):
        options = (beta_fast, beta_slow)
        return reference.yarn(head_dim, base, train_length, scale, *options, ramp="rotations")

    results = [result for result in check(load("yarn"), turns) if not result.skipped]
    assert all(result.passes for result in results)
    assert {result.convention for result in results} == {"ramp='rotations' in place of 'dims'"}

    def on_logits(config, length=None, layer_type="full_attention"):
        made = reference.configuration(config, length, layer_type)
        conventions = made.pop("conventions")
        return made | next((conventions[name] for name in conventions if "torchtitan" in name), {})

    results = check(load("configuration"), on_logits)
    assert all(result.passes for result in results)
    assert any("torchtitan" in result.convention for result in results)


@pytest.mark.parametrize(("name", "output"), mistakes.BY_OUTPUT, ids=str)
def test_known_mistakes_fail_and_are_named(name, output):
    for sentence, mistaken in mistakes.BY_OUTPUT[name, output].items():
        right = reference.subjects()[name]

        def wrong(mistaken=mistaken, right=right, **inputs):
            with np.errstate(all="ignore"):
                value = mistaken(**inputs)
            returned = right(**inputs)
            return returned | {output: value} if isinstance(returned, dict) else value

        (line,) = found(name, wrong)
        assert line.startswith(f"{output}: {sentence}"), line


def test_reversed_orders_signs_and_factors_are_named():
    for change, sentence in (
        (lambda x: x[..., ::-1], "the last axis is in the reverse order"),
        (lambda x: -x, "the sign is reversed"),
        (lambda x: 0.7 * x, "in each case all numbers have one wrong factor: 0.7"),
        (lambda x: jnp.asarray(x, jnp.bfloat16), "numbers have bfloat16's precision: compute in"),
        (lambda x: jnp.asarray(x, jnp.float16), "numbers have float16's precision: compute in"),
    ):
        (line,) = found("sandwich", lambda **x: change(reference.sandwich(**x)))  # noqa: B023
        assert line.startswith(f"bias: {sentence}")
