"""What cannot be extended, and the words of the answer: one line, which names the choices."""

import math
import re

import jax
import numpy as np
import pytest
from attending import qkv
from sizes import DIMS, L, with_options

import posenc_jax
from posenc_jax import extensions, schemes
from posenc_jax.attention import attend

KEY = jax.random.key(0)
ROPE = posenc_jax.build("rope", DIMS)
MADE_FOR_ROTATIONS = "made for rope or DistanceBias without a window"
ALREADY = [  # two extensions of one kind
    ("rerope", "dca", "distance"),
    ("streaming", "self_extend", "distance"),
    ("rerope", "logn", "temperature"),
    ("logn", "temperature:factor=1.25", "temperature"),
    ("drop", "drop:keep=0.25", "drop"),
    ("drop:clip=soft", "drop", "drop"),
    ("pi", "yarn", "rotation"),
    ("longrope:lambdas=1/1/1/1:short=1/1/1/2:attention_factor=1", "pi", "rotation"),
    ("window", "window", "window"),
    ("interpolate", "clamp", "table"),
]
ENCODINGS = {
    "rope": ("rope", {}),
    "hybrid": ("hybrid", {}),
    "hybrid of chunks": ("hybrid", {"chunked": True}),
    "hybrid of windows": ("hybrid", {"pattern": "local"}),
    "hybrid of states": ("hybrid", {"pattern": "decay"}),
    **{name: (name, {}) for name in ("nope", "relative", "selective_rope", "retention")},
}
REFUSED = {
    "rope": [
        # Names and scales
        ("yran", r"unknown extension 'yran'; did you mean 'yarn'\?"),
        ("yarn:8+yran", r"unknown extension 'yran'; did you mean 'yarn'\?"),
        ("yarn+ntk", "'yarn[+]ntk' composes 'yarn' and 'ntk', which both change the rotation"),
        ("logn+logn", "both change the temperature"),
        ("rerope+logn", "both change the temperature"),
        ("rerope+dca", "both change the distance"),
        ("lm_infinite+window", "both change the window"),
        ("streaming+lm_infinite", "both change the (distance|window)"),
        ("none+logn", "'none' cannot be composed"),
        ("yarn:2+window:4", "several scales"),
        ("yarn:0.5", "scale must be at least 1"),
        ("yarn:1_6", "the scale of yarn must be a finite number"),
        ("yarn:１６", "the scale of yarn must be a finite number"),
        # Options
        ("yarn:beta_fats=1", r"'beta_fats'; did you mean 'beta_fast'\?"),
        ("yarn:beta_fast=1:beta_slow=2", "beta_fast must exceed beta_slow"),
        ("yarn:ramp=linear", "ramp must be one of 'dims', 'rotations'"),
        ("yarn:truncate=1", "truncate must be True or False"),
        ("yarn:attention_factor=row", "attention_factor, unless 'query', must be a finite number"),
        ("yarn:attention_factor=1e30", "'query', must be a number from 1e-30 to 1e[+]06"),
        ("yarn:coefficient=0.07:attention_factor=1", "0.07 has no effect beside attention_factor"),
        ("yarn:coefficient=0.07:attention_factor=query", "no effect beside .* = 'query'"),
        ("yarn:coefficient=0", r"coefficient \(attention_factor=1 is without\) must be .* above 0"),
        ("yarn:1e6:coefficient=1e6", "attention_factor, unless 'query', must be a number from"),
        ("yarn:frequency_scale=0.5", "frequency_scale must be a finite number above 1"),
        ("pi:base=1", "takes no options; got 'base'"),
        ("yarn+logn:base=2", "extension 'logn' takes no options; got 'base'"),
        ("abf", "needs the option 'base'"),
        ("abf:base=-1", "base must be a finite number above 1"),
        ("longrope:lambdas=1/1/1", "one factor per rotary pair, 4; got 3"),
        ("longrope:lambdas=1/2/0/1", "each of lambdas must be"),
        ("longrope:lambdas=2.0", "lambdas must be a list of 4 numbers"),
        (
            "longrope:lambdas=1/1/1/1:short=1/1",
            "short must have one factor per rotary pair, 4; got 2",
        ),
        ("longrope:lambdas=1e-300/1/1/1", "each of lambdas must be a number from 1e-30 to"),
        ("llama3:low=4:high=1", "high must exceed low"),
        ("drop:clip=gentle", "clip must be one of 'hard', 'soft'; got 'gentle'"),
        ("ntk:rule=fast", "rule must be one of 'bloc97', 'gradient'; got 'fast'"),
        ("temperature:factor=1e30", r"factor must be a number from 1e-30 to 1e\+06; got 1e\+30"),
        ("window:size=0", "size must be a whole number of at least 1"),
        ("rerope:w=0", "w must be a whole number of at least 1; got 0"),
        ("leaky_rerope:k=0.5", "k must be at least 1; got 0.5"),
        ("leaky_rerope:w=16", "w must be below L = 16 unless k is given; got w=16"),
        ("self_extend:group=2.5", "group must be a whole number of at least 1; got 2.5"),
        ("self_extend:window=11", "window must be below 2 L / 3, L = 16, unless group is given"),
        ("self_extend:floor=1", "floor must be True or False"),
        ("streaming:first=16", "first must be below L = 16 unless window is given; got 16"),
        ("lm_infinite:limit=0", "limit must be a whole number of at least 1; got 0"),
        *(
            (f"{name}:{option}=99999999999", f"^{option} must be at most 16,777,216; got 9")
            for name, option in (
                ("rerope", "w"),
                ("leaky_rerope", "w"),
                ("streaming", "first"),
                ("streaming", "window"),
                ("lm_infinite", "first"),
                ("lm_infinite", "limit"),
                ("self_extend", "window"),
                ("self_extend", "group"),
                ("window", "size"),
            )
        ),
        # Layers
        ("yarn:layers=global", "layers='global' has no effect: all layers of encoding 'rope'"),
    ],
    "hybrid": [
        ("yarn:layers=global", "'yarn' changes nothing in encoding 'hybrid' with layers"),
        ("yarn:layers=far", "unknown kind of layers: 'far'; have: all, global, local"),
        ("streaming", MADE_FOR_ROTATIONS),
        ("lm_infinite", MADE_FOR_ROTATIONS),
    ],
    "hybrid of chunks": [("streaming", MADE_FOR_ROTATIONS), ("lm_infinite", MADE_FOR_ROTATIONS)],
    "hybrid of windows": [("yarn:layers=global", "unknown kind of layers: 'global'")],
    "nope": [
        ("dca", "'dca' is made for rope and does not fit"),
        ("streaming", f"'streaming' is {MADE_FOR_ROTATIONS} of its own and does not fit"),
    ],
    "relative": [("streaming", "made for rope or DistanceBias .* not fit encoding 'relative'")],
    "selective_rope": [("yarn", "made for rope and does not fit encoding 'selective_rope'")],
    "retention": [
        ("yarn:4:attention_factor=1", "attention_factor = 1 has no effect on encoding 'retention'"),
        ("dynamic_yarn:frequency_scale=8", "frequency_scale = 8 has no effect"),
        ("yarn:coefficient=0.07", "coefficient = 0.07 has no effect on encoding 'retention'"),
        ("longrope:4:lambdas=1/1/1/1:attention_factor=2", "norm cancels factors on logits"),
        ("self_extend:group=2", "does not fit encoding 'retention'"),  # it has no regions
    ],
}


def refusal(extension, encoding, scale=2.0):
    with pytest.raises(ValueError) as caught:
        posenc_jax.extend(extension, encoding, scale)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "extension", "words"),
    [(name, *case) for name, cases in REFUSED.items() for case in cases],
)
def test_an_extension_is_refused_with_its_reason(name, extension, words):
    scheme, options = ENCODINGS[name]
    encoding = posenc_jax.build(scheme, DIMS, KEY, **options)
    assert re.search(words, refusal(extension, encoding))


@pytest.mark.parametrize("scale", [0.5, 0.0, -1.0, math.nan, math.inf, "4", True, None])
def test_an_invalid_scale_is_refused(scale):
    assert "scale must be" in refusal("yarn", ROPE, scale)


@pytest.mark.parametrize(("first", "second", "kind"), ALREADY)
def test_a_second_extension_of_a_kind_is_refused(first, second, kind):
    encoding = ROPE if kind != "table" else posenc_jax.build("learned", DIMS, KEY)
    extended = posenc_jax.extend(first, encoding, 2.0)
    assert re.search(rf"already extended.*\({kind}\)", refusal(second, extended))


def test_what_is_no_encoding_as_built_is_refused():
    edited = ROPE.replace(inv_freq=ROPE.inv_freq * 1.1)
    short = posenc_jax.build("rope", posenc_jax.Dims(1, 8, 8, 6))
    assert "needs a train_length of at least 7; got 6" in refusal("ntk:rule=gradient", short)
    assert "not those of its base" in refusal("yarn", edited)
    assert "made by posenc_jax.build" in refusal("yarn", "rope")
    with pytest.raises(ValueError, match="'yarn' changes no distances; those that do: .*dca"):
        extensions.distances("yarn", 8, 4)
    with pytest.raises(ValueError, match="works on the host"):
        jax.jit(lambda encoding: posenc_jax.extend("yarn", encoding, 2.0))(ROPE)


@pytest.mark.parametrize("name", schemes.names())
def test_an_extension_that_does_not_fit_or_is_there_is_refused(name):
    encoding = posenc_jax.build(name, DIMS, KEY)
    fitting = extensions.fitting(encoding)
    assert "none" in fitting and ("logn" in fitting) == (name != "retention")
    for other in extensions.records():
        text = with_options(other, name)
        if other in fitting:
            extended = posenc_jax.extend(text, encoding, 2.0)
            # FoPE turns one pair of this size, whose frequency of 1 some extensions keep.
            pairs = zip(*map(jax.tree.leaves, (extended, encoding)), strict=False)
            same = name == "fope" and all(np.array_equal(*pair) for pair in pairs)
            assert other == "none" or same or "already extended" in refusal(text, extended)
        else:
            message = refusal(text, encoding)
            assert f"does not fit encoding '{name}'" in message and ", ".join(fitting) in message


def test_the_largest_factors_give_finite_attention():
    q, k, v = qkv(L)
    for largest in (
        "yarn:8:attention_factor=1e6+temperature:factor=1e6",
        "longrope:4:lambdas=1e-30/1e-30/1e-30/1",
    ):
        assert np.isfinite(attend(q, k, v, posenc_jax.extend(largest, ROPE, 2.0))).all()
