"""Numbers out of range are refused with one line that names the limits."""

import jax
import numpy as np
import pytest
from configured import problems_of
from sizes import DIMS, L

import posenc_jax
from configs import base
from posenc_jax.attention import attend
from posenc_jax.config import check, schema

KEY = jax.random.key(0)


def refusal(call):
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "option",
    [
        "rerope:w",
        "leaky_rerope:w",
        "streaming:first",
        "streaming:window",
        "lm_infinite:first",
        "lm_infinite:limit",
        "self_extend:window",
        "self_extend:group",
        "window:size",
    ],
)
def test_token_counts_have_an_upper_bound(option):
    rope = posenc_jax.build("rope", DIMS)
    message = refusal(lambda: posenc_jax.extend(f"{option}=99999999999", rope, 2.0))
    assert message.startswith(f"{option.partition(':')[2]} must be at most 16,777,216; got 9")


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("yarn:8:attention_factor=1e30", "attention_factor must be a number from 1e-30 to 1e+06"),
        ("temperature:factor=1e30", "factor must be a number from 1e-30 to 1e+06; got 1e+30"),
        ("longrope:4:lambdas=1e-300/1/1/1", "each of lambdas must be a number from 1e-30 to"),
    ],
)
def test_factors_that_make_logits_infinite_are_refused(written, rule):
    assert refusal(lambda: extended(written)).startswith(rule)


@pytest.mark.parametrize(
    "written",
    [
        "yarn:8:attention_factor=1e6+temperature:factor=1e6",
        "longrope:4:lambdas=" + "1e-30/" * 3 + "1",
    ],
)
def test_the_largest_factors_give_finite_attention(written):
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 1, L, DIMS.heads, DIMS.head_dim)).astype(np.float32)
    assert np.isfinite(attend(q, k, v, extended(written))).all()


def extended(written):
    return posenc_jax.extend(written, posenc_jax.build("rope", DIMS), 2.0)


@pytest.mark.parametrize("key", [3, "x", np.ones(2), jax.random.split(KEY, 2)])
@pytest.mark.parametrize("name", ["fire", "rope"])
def test_an_invalid_random_key_is_refused(name, key):
    message = refusal(lambda: posenc_jax.build(name, DIMS, key=key))
    assert message.startswith("key must be a single key, such as jax.random.key(0); got ")


@pytest.mark.parametrize("key", [KEY, jax.random.PRNGKey(0)])
def test_typed_and_raw_keys_build_the_same_encoding(key):
    typed, given = (posenc_jax.build("fire", DIMS, key=each) for each in (KEY, key))
    assert all(map(np.array_equal, jax.tree.leaves(typed), jax.tree.leaves(given)))


def test_seeds_below_2_to_63_are_valid():
    config = base.get_config()
    config.seed = 2**63 - 1
    assert not problems_of(config)
    config.seed = 2**63
    assert problems_of(config) == [
        "seed must be at most 9,223,372,036,854,775,807; got 9,223,372,036,854,775,808"
    ]


@pytest.mark.parametrize("lengths", ["128,２５６", "1_28", "128,+2_56"])
def test_only_ascii_digits_are_numbers(lengths):
    config = schema.evaluation()
    config.lengths = lengths
    (said,) = check.mistakes_in_evaluation(config.to_dict())
    assert said.startswith("each of lengths must be a whole number of at least 2; got '")


@pytest.mark.parametrize("written", ["yarn:1_6", "yarn:１６"])
def test_a_scale_must_be_ascii_digits(written):
    assert "the scale of yarn must be a finite number" in refusal(lambda: extended(written))
