"""Extensions against golden numbers and float64 formulas, and their errors."""

import json
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import ROOT
from sizes import DIMS, L

import posenc_jax
from posenc_jax import composition, extensions, schemes
from posenc_jax.encoding import Dims, Encoding
from posenc_jax.evaluation.methods import methods
from posenc_jax.layers import stack

pytestmark = pytest.mark.sampled

GOLDEN = json.loads((ROOT / "tests" / "golden" / "rope.json").read_text())
NAMES = {"linear": "pi", "dynamic": "dynamic_ntk"}
KEY = jax.random.key(0)
# Required options beside the scale, for 4 rotary pairs.
OPTIONS = {
    "longrope": {"lambdas": [1.0, 1.5, 2.0, 4.0]},
    "abf": {"base": 50_000.0},
    "temperature": {"factor": 1.25},
}
ROTARY = [n for n, e in extensions.records().items() if e.kind.name in ("rotation", "drop")]
UNIVERSAL = [n for n, e in extensions.records().items() if e.of is Encoding]
SCALED = [n for n in ROTARY if extensions.records()[n].scale != "none"]
IDENTITY_AT_ONE = [n for n in SCALED if n != "longrope"]


def build(name="rope", dims=DIMS, **options):
    return posenc_jax.build(name, dims, key=KEY, **options)


def extend(name, encoding, scale, **options):
    return posenc_jax.extend(name, encoding, scale, **OPTIONS.get(name, {}) | options)


def close(value, expected, rtol=1e-6):
    np.testing.assert_allclose(np.asarray(value, np.float64), expected, rtol=rtol)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"{c['kind']}-{c['scale']}")
def test_rotary_extensions_match_golden_frequencies(case):
    dims = Dims(4, case["head_dim"], 4 * case["head_dim"], case["train_length"])
    rope = build(dims=dims, base=case["base"])
    options = {k: case[k] for k in ("truncate", "beta_fast", "beta_slow") if k in case}
    if case["kind"] == "llama3":
        options = {"low": case["low_freq_factor"], "high": case["high_freq_factor"]}
    scale = case["scale"]
    if case["kind"] == "dynamic":
        scale = case["eval_length"] / case["train_length"]
    extended = extend(NAMES.get(case["kind"], case["kind"]), rope, scale, **options)
    close(extended.inv_freq, case["inv_freq"])
    close(extended.gain, case["attention_factor"])


def yarn_frequencies(theta, rotary, base, length, s, fast=32.0, slow=1.0, truncate=True):
    def dim(n):
        return rotary * math.log(length / (2 * math.pi * n)) / (2 * math.log(base))

    low, high = dim(fast), dim(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = min(max(low, 0), rotary - 1), min(max(high, 0), rotary - 1)
    high += 0.001 if low == high else 0
    out = []
    for i, t in enumerate(theta):
        ramp = min(max((i - low) / (high - low), 0), 1)
        out.append((t / s) * ramp + t * (1 - ramp))
    return out


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("length", [64, 4096])
@pytest.mark.parametrize("options", [{}, {"truncate": False}, {"beta_fast": 8, "beta_slow": 2}])
def test_yarn_follows_its_formula(fraction, base, length, options):
    rope = build(dims=Dims(2, 64, 128, length), base=base, fraction=fraction)
    rotary = int(64 * fraction)
    theta = [base ** (-2 * i / rotary) for i in range(rotary // 2)]
    expected = yarn_frequencies(
        theta,
        rotary,
        base,
        length,
        8.0,
        options.get("beta_fast", 32),
        options.get("beta_slow", 1),
        options.get("truncate", True),
    )
    close(extend("yarn", rope, 8.0, **options).inv_freq, expected)
    close(extend("ntk_by_parts", rope, 8.0, **options).inv_freq, expected)


def test_yarn_scales_the_logits_by_its_squared_factor():
    rope = build(dims=Dims(2, 64, 128, 4096))
    for scale, squared in ((4.0, 1.2965), (8.0, 1.4591)):
        assert abs(float(extend("yarn", rope, scale).gain) ** 2 - squared) < 5e-5
    assert extend("ntk_by_parts", rope, 8.0).gain == 1
    close(extend("yarn", rope, 8.0, attention_factor=1.25).gain, 1.25)
    q = k = jnp.ones((1, 1, 1, 64))
    plain, extended = (e.phase(jnp.zeros(1)) for e in (rope, extend("yarn", rope, 8.0)))
    turned = posenc_jax.attention.rotate
    before = turned(q, plain.q_cos, plain.q_sin, "half") @ turned(
        k, plain.k_cos, plain.k_sin, "half"
    ).swapaxes(2, 3)
    after = turned(q, extended.q_cos, extended.q_sin, "half") @ turned(
        k, extended.k_cos, extended.k_sin, "half"
    ).swapaxes(2, 3)
    close(after / before, (0.1 * math.log(8) + 1) ** 2)


def test_the_ramp_over_rotations_follows_the_paper():
    length, rotary, s = 2048, 64, 8.0
    rope = build(dims=Dims(2, rotary, 128, length))
    theta = 10_000.0 ** (-np.arange(0, rotary, 2) / rotary)
    turns = length * theta / (2 * np.pi)
    kept = np.clip((turns - 1) / (32 - 1), 0, 1)
    extended = extend("yarn", rope, s, ramp="rotations").inv_freq
    close(extended, (1 - kept) * theta / s + kept * theta)
    ratio = extended / extend("yarn", rope, s).inv_freq
    assert 1.5 < max(ratio.max(), (1 / ratio).max()) < 3  # the two ramps differ


def test_a_collapsed_ramp_warns():
    rope = build(dims=Dims(1, 8, 8, 5))  # no pair turns even once
    with pytest.warns(UserWarning, match="ramp collapses: with L = 5 and 8 rotary dims"):
        extended = extend("yarn", rope, 4.0)
    np.testing.assert_allclose(extended.inv_freq[1:], rope.inv_freq[1:] / 4, rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extend("yarn", build(), 4.0)


@pytest.mark.parametrize("scale", [1.5, 4.0, 7.3, 32.0])
def test_ntk_divides_the_slowest_pair_by_exactly_the_scale(scale):
    rope = build(dims=Dims(1, 64, 64, 128))
    extended = extend("ntk", rope, scale)
    slowest = np.float32(10_000.0 ** (-62 / 64) / scale)  # rounded once
    assert extended.inv_freq[-1] == slowest
    assert extended.inv_freq[0] == rope.inv_freq[0]
    base = 10_000.0 * scale ** (64 / 62)
    close(extended.inv_freq, base ** (-np.arange(0, 64, 2) / 64), rtol=5e-7)


def test_pi_compresses_positions():
    rope = build(dims=Dims(1, 32, 32, 128))
    for scale in (2.0, 8.0):  # divisions by powers of two are exact
        extended = extend("pi", rope, scale).phase(jnp.arange(512))
        compressed = rope.phase(jnp.arange(512) / scale)
        np.testing.assert_allclose(extended.q_cos, compressed.q_cos, atol=3e-6)
        np.testing.assert_allclose(extended.k_sin, compressed.k_sin, atol=3e-6)


def test_llama3_follows_its_formula():
    rope = build(dims=Dims(1, 128, 128, 8192), base=500_000.0)
    expected = []
    for theta in 500_000.0 ** (-np.arange(0, 128, 2) / 128):
        wavelength = 2 * math.pi / theta
        if wavelength > 8192 / 2:
            expected.append(theta / 16)
        elif wavelength < 8192 / 6:
            expected.append(theta)
        else:
            x = (8192 / wavelength - 2) / (6 - 2)
            expected.append(theta * ((1 - x) / 16 + x))
    close(extend("llama3", rope, 16.0, low=2.0, high=6.0).inv_freq, expected)


def test_longrope_divides_each_pair_by_its_own_factor():
    lambdas = [1.0, 1.25, 3.0, 8.0]
    extended = extend("longrope", build(), 4.0, lambdas=lambdas)
    close(extended.inv_freq, np.asarray(build().inv_freq) / lambdas)
    close(extended.gain, math.sqrt(1 + math.log(4) / math.log(L)))


def test_abf_changes_the_base():
    np.testing.assert_array_equal(
        extend("abf", build(), 1.0, base=500_000.0).inv_freq, build(base=500_000.0).inv_freq
    )


@pytest.mark.parametrize("name", schemes.names())
def test_logn_scales_queries_of_any_encoding(name):
    encoding = extend("logn", build(name), 1.0)
    scale = encoding.query_scale(jnp.arange(1_000))
    length = 8 * L if name == "randomized" else L  # its max_position
    unextended = build(name).query_scale(jnp.arange(1_000))
    assert (unextended is None) == (name != "ssmax")
    logn = np.maximum(1, np.log(np.arange(1_000) + 1) / math.log(length))
    close(scale, logn if unextended is None else np.asarray(unextended, np.float64) * logn)


@pytest.mark.slow
def test_logn_does_not_scale_a_bias():
    q = jnp.zeros((1, 64, DIMS.heads, DIMS.head_dim))
    v = jax.random.normal(KEY, q.shape)
    alibi = build("alibi")
    # With q = 0 only the bias remains, which the query scale must not change.
    np.testing.assert_array_equal(
        posenc_jax.attention.attend(q, v, v, extend("logn", alibi, 1.0)),
        posenc_jax.attention.attend(q, v, v, alibi),
    )


def test_interpolate_reads_the_table_between_its_rows():
    learned = build("learned")
    longer = extend("interpolate", learned, 4.0)
    assert longer.reach == 4 * L and longer.train_length == L
    np.testing.assert_array_equal(longer.table[::4], learned.table)
    middle = (learned.table[3] + learned.table[4]) / 2
    np.testing.assert_allclose(longer.table[14], middle, atol=1e-7)
    np.testing.assert_array_equal(longer.table[-1], learned.table[-1])
    assert extend("interpolate", learned, 1.3).reach == math.ceil(1.3 * L)


def test_clamp_repeats_the_last_row():
    learned = build("learned")
    longer = extend("clamp", learned, 2.5)
    assert longer.reach == 40
    np.testing.assert_array_equal(longer.table[:L], learned.table)
    np.testing.assert_array_equal(longer.table[L:], np.tile(learned.table[-1], (40 - L, 1)))


@pytest.mark.parametrize("name", [*IDENTITY_AT_ONE, "interpolate", "clamp", "none"])
def test_scale_one_is_the_bitwise_identity(name):
    encoding = build("learned" if name in ("interpolate", "clamp") else "rope")
    extended = extend(name, encoding, 1.0)
    assert jax.tree.structure(extended) == jax.tree.structure(encoding)
    for after, before in zip(jax.tree.leaves(extended), jax.tree.leaves(encoding), strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("name", [n for n in extensions.records() if n != "none"])
def test_a_scale_above_one_changes_the_logits(name, make_model, make_tokens, forward):
    encoding = build("learned" if name in ("interpolate", "clamp") else "rope")
    model, tokens = make_model(), make_tokens(2 * L)
    if name in ("interpolate", "clamp"):
        before = forward(model, tokens[:, :L], encoding)[:, :L]
    else:
        before = forward(model, tokens, encoding)[:, :L]
    extended = extend(name, encoding, 2.0)
    after = forward(model, tokens, extended)
    changed = bool(jnp.any(jnp.abs(after[:, :L] - before) > 1e-4))
    # These change logits beyond L only.
    beyond = ("logn", "window", "lm_infinite", "streaming")
    assert changed == (name not in ("clamp", *beyond))
    if name in beyond:
        assert jnp.any(after[:, L:] != forward(model, tokens, encoding)[:, L:])


@pytest.mark.parametrize("name", ["pi", "ntk", "yarn"])
def test_dynamic_extensions_equal_static_ones_at_the_input_length(name):
    rope = build(dims=Dims(1, 64, 64, 128))
    for scale in (3.0, 1.0, 8.0, 0.25, 3.0):  # in any order, without state
        dynamic = extend(f"dynamic_{name}", rope, scale)
        static = extend(name, rope, max(1.0, scale))
        for a, b in zip(jax.tree.leaves(dynamic), jax.tree.leaves(static), strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_program_serves_every_rotary_extension_at_every_scale(make_model, make_tokens):
    compilations = 0

    @jax.jit
    def forward(model, tokens, encoding):
        nonlocal compilations
        compilations += 1
        return model(tokens, encoding)

    model, tokens, rope = make_model(), make_tokens(2 * L), build()
    results = [forward(model, tokens, rope)]
    for name in ROTARY:
        for scale in (1.0, 2.0, 8.0):
            results.append(forward(model, tokens, extend(name, rope, scale)))
    assert compilations == 1 and forward._cache_size() == 1
    assert len({np.asarray(r).tobytes() for r in results}) > len(ROTARY)


@pytest.mark.parametrize("name", schemes.names())
def test_an_unfit_extension_is_refused_with_the_choices(name):
    encoding = build(name)
    fitting = extensions.fitting(encoding)
    assert {"none", "logn"} <= set(fitting)
    for other in set(extensions.records()) - set(fitting):
        with pytest.raises(ValueError, match=f"does not fit encoding '{name}'") as error:
            extend(other, encoding, 2.0)
        assert ", ".join(fitting) in str(error.value)
    for fits in fitting:
        extend(fits, encoding, 2.0)


def test_randomized_fits_the_extensions_of_its_inner_encoding():
    wrapped = build("randomized", inner="rope", max_position=4 * L)
    extended = extend("yarn", wrapped, 4.0)
    close(extended.inner.inv_freq, extend("yarn", wrapped.inner, 4.0).inv_freq)
    assert extended.inner.train_length == 4 * L  # the positions it was trained at
    with pytest.raises(ValueError, match="already extended"):
        extend("pi", extended, 2.0)
    assert extend("logn", extended, 2.0).logn  # of another kind
    assert "yarn" not in extensions.fitting(build("randomized", inner="t5"))
    assert extensions.fitting(build("randomized", inner="learned")) == UNIVERSAL


def test_randomized_may_keep_an_earlier_training_length():
    wrapped = build("randomized", inner="rope", max_position=4 * L, inner_length=L)
    assert wrapped.train_length == L
    extended = extend("yarn", wrapped, 4.0)
    close(extended.inner.inv_freq, extend("yarn", build("rope"), 4.0).inv_freq)
    drawn = extended.positions(L, jax.random.key(0))
    assert L < drawn[-1] < 4 * L and (jnp.diff(drawn) > 0).all()


def test_all_formulas_use_one_length_of_randomized():
    """They use max_position, as if the inner encoding was trained that far."""
    wrapped = build("randomized", inner="rope", max_position=4 * L)
    alone = build("rope", dims=Dims(DIMS.heads, DIMS.head_dim, DIMS.width, 4 * L))
    assert wrapped.train_length == 4 * L and wrapped.dims.train_length == L
    for name in ROTARY:
        extended = extend(name, wrapped, 4.0).inner
        expected = extend(name, alone, 4.0)
        np.testing.assert_array_equal(extended.inv_freq, expected.inv_freq)
        np.testing.assert_array_equal(extended.gain, expected.gain)
    scales = extend("logn", wrapped, 1.0).query_scale(jnp.arange(16 * L))
    np.testing.assert_array_equal(
        scales, extend("logn", alone, 1.0).query_scale(jnp.arange(16 * L))
    )
    np.testing.assert_array_equal(scales[: 4 * L], 1)
    close(scales[16 * L - 1], math.log(16 * L) / math.log(4 * L))
    with pytest.raises(ValueError, match="max_position must be at most 16,777,216"):
        build("randomized", max_position=2**24 + 1)


def test_extend_requires_a_concrete_encoding():
    with pytest.raises(ValueError, match="made by posenc_jax.build"):
        posenc_jax.extend("yarn", "rope", 2.0)  # pyright: ignore
    with pytest.raises(ValueError, match="works on the host"):
        jax.jit(lambda e: extend("yarn", e, 2.0))(build())
    assert extend("pi", build(), jnp.float32(2.0)).inv_freq[0] == 0.5


@pytest.mark.parametrize("name", [*ROTARY, "logn", "window", "interpolate", "clamp"])
def test_a_second_extension_of_the_same_kind_is_refused(name):
    encoding = build("learned" if name in ("interpolate", "clamp") else "rope")
    extended = extend(name, encoding, 2.0)
    with pytest.raises(ValueError, match="already extended"):
        extend(name, extended, 2.0)
    if name != "logn":
        assert extend("logn", extended, 2.0).logn
    assert extend("none", extended, 1.0) is extended


@pytest.mark.parametrize("scale", [0.5, 0.0, -1.0, math.nan, math.inf, "4", True, None])
def test_an_invalid_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale must be"):
        extend("yarn", build(), scale)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("yran", {}, "unknown extension 'yran'; did you mean 'yarn'?"),
        ("yarn", {"beta_fats": 1}, "'beta_fats'; did you mean 'beta_fast'?"),
        ("yarn", {"beta_fast": 1, "beta_slow": 2}, "beta_fast must exceed beta_slow"),
        ("yarn", {"ramp": "linear"}, "ramp must be one of 'dims', 'rotations'"),
        ("yarn", {"truncate": 1}, "truncate must be True or False"),
        ("yarn", {"attention_factor": 0}, "attention_factor must be a finite number above 0"),
        ("pi", {"base": 1}, "takes no options; got 'base'"),
        ("abf", {}, "needs the option 'base'"),
        ("abf", {"base": -1.0}, "base must be a finite number above 1"),
        ("longrope", {"lambdas": [1.0]}, "one factor per rotary pair, 4; got 1"),
        ("longrope", {"lambdas": [1.0, 2.0, 0.0, 1.0]}, "each of lambdas must be"),
        ("longrope", {"lambdas": 2.0}, "lambdas must be a list of 4 numbers"),
        ("llama3", {"low": 4.0, "high": 1.0}, "high must exceed low"),
    ],
)
def test_wrong_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        posenc_jax.extend(name, build(), 2.0, **options)


class TestLayersAndHeads:
    """Extensions of stacked and per-head frequencies, each with its own base."""

    def test_each_layer_is_extended_by_its_own_base(self):
        local, far = build(base=500.0), build(base=1e6)
        still = build().replace(inv_freq=jnp.zeros(4))
        for name in ROTARY:
            stacked = extend(name, stack([local, far, still]), 4.0)
            for i, alone in enumerate((local, far)):
                expected = extend(name, alone, 4.0)
                close(stacked.inv_freq[i], expected.inv_freq)
                close(stacked.gain[i], expected.gain)
            np.testing.assert_array_equal(stacked.inv_freq[2], 0)

    def test_each_head_is_extended_by_its_own_base(self):
        bases = [500.0, 1e4, 1e5, 1e6]
        for name in ROTARY:
            extended = extend(name, build(base=bases), 4.0)
            for head, base in enumerate(bases):
                close(extended.inv_freq[head], extend(name, build(base=base), 4.0).inv_freq)

    def test_extending_edited_frequencies_is_refused(self):
        edited = build().replace(inv_freq=build().inv_freq * 1.1)
        with pytest.raises(ValueError, match="not those of its base"):
            extend("yarn", edited, 2.0)


def test_turns_count_rotations_within_the_trained_length():
    rope = build(dims=Dims(1, 32, 32, 128))
    turns = extensions.turns(rope)
    close(turns[0], 128 / (2 * math.pi))
    assert np.sum(turns < 1) == 10


def test_compositions_parse_and_print():
    parts = composition.parts("yarn:1e+3:beta_fast=16:ramp=rotations+logn")
    assert [p.name for p in parts] == ["yarn", "logn"]
    assert parts[0].scale == 1000 and parts[0].options == {"beta_fast": 16, "ramp": "rotations"}
    (part,) = composition.parts("longrope:4:lambdas=1/1.5/2/4")
    assert part.options == {"lambdas": (1, 1.5, 2, 4)}
    for text in ("yarn:8:beta_fast=16+logn", "longrope:4:lambdas=1/1.5/2/4", "abf:base=500000"):
        assert composition.text(composition.parts(text)) == text
    assert composition.with_scale("yarn:beta_fast=16+logn", 8.0) == "yarn:8:beta_fast=16+logn"
    for text in ("yarn:1:2", "yarn:a=1:a=2", "yarn:x", "yarn:", "yarn:=2"):
        with pytest.raises(ValueError):
            composition.parts(text)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("yarn:8+logn", [("yarn", 8.0), ("logn", 1.0)]),
        ("logn+yarn:8", [("yarn", 8.0), ("logn", 1.0)]),
        ("dynamic_ntk+logn", [("dynamic_ntk", 3.0), ("logn", 1.0)]),
        ("yarn+window:size=5", [("yarn", 3.0), ("window:size=5", 1.0)]),
    ],
)
def test_extensions_of_different_kinds_compose(text, steps):
    stepwise = build()
    for name, scale in steps:
        stepwise = posenc_jax.extend(name, stepwise, scale)
    together = posenc_jax.extend(text, build(), 3.0)
    assert jax.tree.structure(stepwise) == jax.tree.structure(together)
    for a, b in zip(jax.tree.leaves(stepwise), jax.tree.leaves(together), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yarn+ntk", "'yarn+ntk' composes 'yarn' and 'ntk', which both change the rotation"),
        ("logn+logn", "both change the temperature"),
        ("none+logn", "'none' cannot be composed"),
        ("yarn:8+yran", "unknown extension 'yran'; did you mean 'yarn'?"),
        ("yarn:beta_fats=2", "'beta_fats'; did you mean 'beta_fast'?"),
        ("yarn+logn:base=2", "extension 'logn' takes no options; got 'base'"),
        ("yarn:2+window:4", "several scales"),
        ("yarn:0.5", "scale must be at least 1"),
        ("yarn:layers=global", "layers='global' has no effect: all layers of encoding 'rope'"),
        ("window:size=0", "size must be a whole number of at least 1"),
        ("rerope+logn", "both change the temperature"),
        ("rerope+dca", "both change the distance"),
        ("lm_infinite+window", "both change the window"),
        ("streaming+lm_infinite", "both change the (distance|window)"),
        ("rerope:w=0", "w must be a whole number of at least 1; got 0"),
        ("leaky_rerope:k=0.5", "k must be at least 1; got 0.5"),
        ("leaky_rerope:w=16", "w must be below L = 16 unless k is given; got w=16"),
        ("self_extend:group=2.5", "group must be a whole number of at least 1; got 2.5"),
        ("self_extend:window=11", "window must be below 2 L / 3, L = 16, unless group is given"),
        ("self_extend:floor=1", "floor must be True or False"),
        ("streaming:first=16", "first must be below L = 16 unless window is given; got 16"),
        ("lm_infinite:limit=0", "limit must be a whole number of at least 1; got 0"),
    ],
)
def test_invalid_compositions_are_refused(text, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?").replace("+", r"\+")):
        posenc_jax.extend(text, build(), 2.0)


def test_options_in_the_text_equal_keyword_options():
    inside = posenc_jax.extend("yarn:4:attention_factor=2+logn", build(), 1.0)
    beside = posenc_jax.extend("yarn+logn", build(), 4.0, attention_factor=2.0)
    assert inside.gain == beside.gain == 2 and inside.logn and beside.logn


def test_canonical_names_omit_scale_and_defaults():
    for text, name in (
        ("logn+yarn:8:beta_fast=32.0:beta_slow=2", "yarn:beta_slow=2+logn"),
        ("window:size=64+dynamic_ntk", "dynamic_ntk+window"),
        ("abf:base=5e5", "abf:base=500000"),
        ("none", "none"),
    ):
        assert extensions.canonical(text) == name


def test_the_window_extension_equals_a_window_of_attention(make_model, make_tokens, forward):
    model, tokens, plain = make_model(), make_tokens(2 * L), build()
    windowed = posenc_jax.extend("window:size=5", plain, 1.0)
    np.testing.assert_array_equal(
        forward(model, tokens, windowed), forward(model, tokens, plain, window=5)
    )
    smaller = forward(model, tokens, windowed, window=3)
    np.testing.assert_array_equal(smaller, forward(model, tokens, plain, window=3))
    larger = forward(model, tokens, windowed, window=9)
    np.testing.assert_array_equal(larger, forward(model, tokens, plain, window=5))
    assert posenc_jax.extend("window", plain, 1.0).window == L


def test_a_record_states_its_scale():
    scales = {name: record.scale for name, record in extensions.records().items()}
    assert list(scales)[0] == "none"
    for kind, names in (
        ("read", ("dynamic_pi", "dynamic_ntk", "dynamic_yarn")),
        ("none", ("none", "logn", "window", "abf")),
        ("given", ("pi", "ntk", "yarn", "llama3", "longrope", "interpolate", "clamp")),
    ):
        assert {scales[name] for name in names} == {kind}


def hybrid():
    dims = posenc_jax.Dims(heads=2, head_dim=8, width=16, train_length=32, layers=4)
    return posenc_jax.build("hybrid", dims)


def test_an_extension_changes_only_the_hybrid_layers_it_fits():
    before, after = hybrid(), posenc_jax.extend("yarn", hybrid(), 4.0)
    alone = posenc_jax.extend("yarn", before.layer(0), 4.0)
    np.testing.assert_array_equal(after.layer(0).inv_freq, alone.inv_freq)
    assert jax.tree.structure(before) == jax.tree.structure(after)  # one program for both
    named = posenc_jax.extend("yarn:layers=local", hybrid(), 4.0)
    np.testing.assert_array_equal(after.layer(0).inv_freq, named.layer(0).inv_freq)
    randomized = posenc_jax.build("randomized", before.dims, inner="hybrid")
    assert "yarn" in extensions.fitting(randomized) and "yarn" in extensions.fitting(before)


def test_the_layers_option_selects_hybrid_layers_by_kind():
    with pytest.raises(ValueError, match="'yarn' changes nothing in encoding 'hybrid' with layers"):
        posenc_jax.extend("yarn:layers=global", hybrid(), 4.0)
    with pytest.raises(ValueError, match="unknown kind of layers: 'far'; have: global, local"):
        posenc_jax.extend("yarn:layers=far", hybrid(), 4.0)
    kinds = ("local", "local", "local", "global")
    cooled = posenc_jax.extend("logn:layers=global", hybrid(), 1.0)
    assert [cooled.layer(i).logn for i in range(4)] == [kind == "global" for kind in kinds]
    seen = posenc_jax.extend("window:size=4:layers=global", hybrid(), 1.0)
    assert [seen.layer(i).window for i in range(4)] == [8, 8, 8, 4]
    both = posenc_jax.extend("logn+window:size=4", hybrid(), 1.0, layers="global")
    assert [both.layer(i).logn for i in range(4)] == [kind == "global" for kind in kinds]
    assert [both.layer(i).window for i in range(4)] == [8, 8, 8, 4]
    wider = posenc_jax.extend("window:size=100", hybrid(), 1.0)
    assert [wider.layer(i).window for i in range(4)] == [8, 8, 8, 100]


def test_method_names_hold_options_without_a_column():
    (method,) = methods("window:size=4:layers=global", hybrid(), 4.0)
    assert (method.name, method.limit) == ("window:layers=global:size=4", None)
    (method,) = methods("window:size=4", hybrid(), 4.0)
    assert (method.name, method.limit) == ("window", 4)
