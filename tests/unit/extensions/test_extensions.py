"""Extensions: options, what they change, and what they are made for."""

import functools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import build, compiled, mixed, qkv, scores_of, turned, visible
from attending import close as trees_close
from sizes import DIMS, L, with_options

import posenc_jax
from posenc_jax import composition, extensions, schemes
from posenc_jax.encoding import Dims, Encoding
from posenc_jax.evaluation.methods import methods
from posenc_jax.extensions.distance import Remapped
from posenc_jax.layers import stack

pytestmark = pytest.mark.sampled

ROTARY = [n for n, e in extensions.records().items() if e.kind.name in ("rotation", "drop")]
UNIVERSAL = [n for n, e in extensions.records().items() if e.of is Encoding]
IDENTITY_AT_ONE = [n for n in ROTARY if n != "longrope" and extensions.records()[n].scale != "none"]


def rope_of(dims=DIMS, **options):
    return build("rope", dims, **options)


def extend(name, encoding, scale, **options):
    return posenc_jax.extend(with_options(name), encoding, scale, **options)


close = functools.partial(trees_close, rtol=1e-6)


def test_yarn_scales_the_logits_by_its_squared_factor():
    rope = rope_of(dims=Dims(2, 64, 128, 4096))
    for scale, squared in ((4.0, 1.2965), (8.0, 1.4591)):
        assert abs(float(extend("yarn", rope, scale).gain) ** 2 - squared) < 5e-5
    assert extend("ntk_by_parts", rope, 8.0).gain == 1
    close(extend("yarn", rope, 8.0, attention_factor=1.25).gain, 1.25)


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("yarn:8:attention_factor=query", 1.0),
        *(("dynamic_yarn:frequency_scale=8", scale) for scale in (0.5, 3.0, 20.0)),
        ("dynamic_yarn:frequency_scale=8:coefficient=0.07", 3.0),
    ],
)
def test_the_factor_of_yarn_may_follow_the_query_or_the_row(text, scale):
    """Against float64; frequencies and keys stay those of s = 8."""
    length = 20 * L
    q, k, v = qkv(length)
    extended, fixed = (extend(t, rope_of(), scale) for t in (text, "yarn:8:attention_factor=1"))
    phases = [encoding.phase(jnp.arange(9)) for encoding in (extended, fixed)]
    jax.tree.map(np.testing.assert_array_equal, *phases)
    s = np.full(length, scale) if "dynamic" in text else (np.arange(length) + 1) / L
    factor = ((0.07 if "0.07" in text else 0.1) * np.log(np.clip(s, 1, 8)) + 1) ** 2
    angle = np.arange(length)[:, None, None] * np.float64(fixed.inv_freq)
    scores = factor[:, None] * scores_of(turned(q, angle), turned(k, angle))
    expected = mixed(scores, visible(length, length), v)
    np.testing.assert_allclose(compiled(q, k, v, extended), expected, atol=2e-5)


FITS_LONGROPE = [n for n in schemes.names() if "longrope" in extensions.fitting(build(n))]


@pytest.mark.parametrize("name", FITS_LONGROPE)
def test_the_length_of_the_rows_chooses_between_two_lists(name):
    pairs = DIMS.head_dim // (1 if name == "pope" else 2)
    near, far = ("/".join(map(str, np.geomspace(1, most, pairs))) for most in (3, 8))
    encoding = build(name)
    both = posenc_jax.extend(f"longrope:4:lambdas={far}:short={near}", encoding, 1.0)
    original = both.train_length
    for length, chosen in ((1, near), (original, near), (original + 1, far)):
        expected = posenc_jax.extend(f"longrope:4:lambdas={chosen}", encoding, 1.0)
        assert jax.tree.structure(both.for_rows(length)) == jax.tree.structure(expected)
        jax.tree.map(np.testing.assert_array_equal, both.for_rows(length), expected)


def test_a_pass_takes_the_list_of_its_length(make_model, make_tokens, forward):
    model, plain = make_model(), rope_of()
    both = posenc_jax.extend("longrope:4:lambdas=1/2/4/8:short=1/1/2/3+drop:keep=0.75", plain, 1.0)
    for length, chosen in ((L, "1/1/2/3"), (L + 1, "1/2/4/8")):
        one = posenc_jax.extend(f"longrope:4:lambdas={chosen}+drop:keep=0.75", plain, 1.0)
        for read in (functools.partial(forward, model, make_tokens(length)), attended(length)):
            np.testing.assert_array_equal(read(both), read(one))
    with pytest.raises(ValueError, match=r"choose them by encoding.for_rows\(length\)"):
        both.phase(np.arange(L))


def attended(length):
    return functools.partial(compiled, *qkv(length))


def test_a_collapsed_ramp_warns():
    rope = rope_of(dims=Dims(1, 8, 8, 5))  # no pair turns even once
    with pytest.warns(UserWarning, match="ramp collapses: with L = 5 and 8 rotary dims"):
        extended = extend("yarn", rope, 4.0)
    np.testing.assert_allclose(extended.inv_freq[1:], rope.inv_freq[1:] / 4, rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extend("yarn", rope_of(), 4.0)


@pytest.mark.parametrize("name", sorted({*schemes.names()} - {"retention"}))
def test_logn_scales_queries_of_any_encoding(name):
    encoding = build(name)
    encoding = extend("logn", encoding, 1.0).layer(encoding.period - 1)
    scale = encoding.query_scale(jnp.arange(1_000))
    length = 8 * L if name == "randomized" else L  # its max_position
    unextended = build(name).query_scale(jnp.arange(1_000))
    assert (unextended is None) == (name != "ssmax")
    logn = np.maximum(1, np.log(np.arange(1_000) + 1) / math.log(length))
    close(scale, logn if unextended is None else np.asarray(unextended, np.float64) * logn)


def test_a_longer_table_reaches_further_and_keeps_its_trained_length():
    learned = build("learned")
    for text, reach in (("interpolate:4", 64), ("interpolate:1.3", 21), ("clamp:2.5", 40)):
        longer = posenc_jax.extend(text, learned, 1.0)
        assert (longer.reach, longer.train_length) == (reach, L)


@pytest.mark.parametrize("name", [*IDENTITY_AT_ONE, "interpolate", "clamp", "none"])
def test_scale_one_is_the_bitwise_identity(name):
    encoding = build("learned" if name in ("interpolate", "clamp") else "rope")
    extended = extend(name, encoding, 1.0)
    assert jax.tree.structure(extended) == jax.tree.structure(encoding)
    jax.tree.map(np.testing.assert_array_equal, extended, encoding)


@pytest.mark.parametrize("name", [n for n in extensions.records() if n != "none"])
def test_a_scale_above_one_changes_the_logits(name, make_model, make_tokens, forward):
    encoding = build("learned" if name in ("interpolate", "clamp") else "rope")
    model, tokens = make_model(), make_tokens(2 * L)
    before = forward(model, tokens[:, : encoding.reach], encoding)[:, :L]
    extended = extend(name, encoding, 2.0)
    after = forward(model, tokens, extended)
    changed = bool(jnp.any(jnp.abs(after[:, :L] - before) > 1e-4))
    # These change logits beyond L only.
    beyond = ("logn", "window", "lm_infinite", "streaming")
    assert changed == (name not in ("clamp", *beyond))
    if name in beyond:
        assert jnp.any(after[:, L:] != forward(model, tokens, encoding)[:, L:])


def test_one_program_serves_every_rotary_extension_at_every_scale(make_model, make_tokens):
    compilations = 0

    @jax.jit
    def forward(model, tokens, encoding):
        nonlocal compilations
        compilations += 1
        return model(tokens, encoding)

    model, tokens, rope = make_model(), make_tokens(2 * L), rope_of()
    results = [forward(model, tokens, rope)]
    for name in ROTARY:
        for scale in (1.0, 2.0, 8.0):
            results.append(forward(model, tokens, extend(name, rope, scale)))
    assert compilations == 1 and forward._cache_size() == 1
    assert len({np.asarray(r).tobytes() for r in results}) > len(ROTARY)


def test_extensions_reach_the_encoding_inside():
    dims = Dims(DIMS.heads, DIMS.head_dim, DIMS.width, L, layers=2)
    trained_of = lambda encoding: jax.tree.leaves(posenc_jax.partition(encoding)[0])  # noqa: E731
    for name, options in (
        ("dape", {"inner": "rope"}),
        ("fox", {"inner": "rope"}),
        ("ssmax", {"inner": "rope"}),
        ("rope", {"sink": True}),
        ("randomized", {"inner": "rope", "inner_length": L}),
    ):
        around = build(name, dims, **options)
        slowed = extend("yarn", around, 4.0)
        expected = extend("yarn", rope_of(), 4.0)
        np.testing.assert_array_equal(slowed.layer(1).inner.inv_freq, expected.inv_freq)
        assert slowed.layers == around.layers
        jax.tree.map(np.testing.assert_array_equal, *map(trained_of, (slowed, around)))
        if name != "randomized":
            remapped = extend("self_extend", around, 4.0).layer(1).inner
            assert remapped.group.shape == () and remapped.inner.inv_freq.shape == (4,)
    cooled = extend("logn", slowed, 2.0)
    assert cooled.logn and extend("none", cooled, 1.0) is cooled
    assert "yarn" not in extensions.fitting(build("fox"))
    assert "yarn" not in extensions.fitting(build("randomized", inner="t5"))
    assert extensions.fitting(build("randomized", inner="learned")) == UNIVERSAL


def test_an_extension_changes_the_layers_of_a_hybrid_that_it_names_or_fits():
    local, far = rope_of(base=1e4), rope_of(base=1e6)
    both = build("hybrid", global_rope=True, local_base=1e4, global_base=1e6)
    unlimited = build("hybrid", window=0, global_rope=True, local_base=1e4, global_base=1e6)
    usual = build("hybrid", local_base=1e4)  # whose global layers do not rotate
    for text, hybrid, changed in (
        ("yarn:layers=global", both, {3: far}),
        ("pi", both, {3: far}),
        ("pi:layers=all", both, {0: local, 3: far}),
        ("pi", unlimited, {0: local, 3: far}),
        ("yarn", usual, {0: local}),
        ("yarn:layers=local", usual, {0: local}),
    ):
        extended = extend(text, hybrid, 8.0)
        assert jax.tree.structure(extended) == jax.tree.structure(hybrid)  # one program for both
        name = text.partition(":")[0]
        for index in (0,) if hybrid is usual else (0, 3):
            expected = hybrid.layer(index)
            if index in changed:
                expected = extend(name, changed[index], 8.0)
            np.testing.assert_array_equal(extended.layer(index).inv_freq, expected.inv_freq)
            assert extended.layer(index).gain == expected.gain
    assert "yarn" in extensions.fitting(build("randomized", inner="hybrid"))
    assert "yarn" not in extensions.fitting(build("hybrid", pattern="global"))
    for name in ("lm_infinite", "streaming"):
        rotating = extend(name, both, 2.0)
        remapped = {kind for kind, layer in rotating.kinds.items() if isinstance(layer, Remapped)}
        assert remapped == {"global"}


class Holder(Encoding):
    """An encoding with others in its fields, of which it forwards the phase of one."""

    rope: Encoding
    others: tuple[dict[str, Encoding], ...] = ()

    def phase(self, positions):
        return self.rope.phase(positions)


@pytest.mark.parametrize("stacked", [False, True])
def test_an_extension_reaches_every_encoding_that_is_held_without_a_word_of_its_own(stacked):
    rope = rope_of()
    holder = Holder(dims=DIMS, rope=rope, others=({"near": rope, "far": build("alibi")}, {}))
    holder = stack([holder, holder]) if stacked else holder
    assert [n for n in extensions.fitting(holder) if n in ROTARY] == ROTARY
    extended, expected = extend("yarn", holder, 4.0), extend("yarn", rope, 4.0).inv_freq
    assert jax.tree.structure(extended) == jax.tree.structure(holder)
    for held in (extended.layer(0).rope, extended.layer(0).others[0]["near"]):
        np.testing.assert_array_equal(held.inv_freq, expected)
    with pytest.raises(ValueError, match="already extended"):
        extend("pi", extended, 4.0)
    with pytest.raises(ValueError, match="rope and does not .*; forward 'regions' as .*Wrapper"):
        extend("self_extend", holder, 4.0)


def test_the_layers_option_selects_hybrid_layers_by_kind():
    hybrid = build("hybrid", window=8)
    by_layer = lambda encoding, field: [getattr(encoding.layer(i), field) for i in range(4)]  # noqa: E731
    cooled = extend("temperature:layers=global", hybrid, 1.0, factor=1.5)
    assert by_layer(cooled, "temperature")[:3] == [None] * 3
    assert by_layer(extend("temperature", hybrid, 1.0), "temperature") == [1.25] * 4
    assert by_layer(extend("logn", hybrid, 1.0), "logn") == [False] * 3 + [True]
    seen = extend("window:size=4:layers=global", hybrid, 1.0)
    assert by_layer(seen, "window") == [8, 8, 8, 4]
    both = posenc_jax.extend("logn+window:size=4", hybrid, 1.0, layers="global")
    assert by_layer(both, "logn") == [False] * 3 + [True]
    assert by_layer(both, "window") == [8, 8, 8, 4]
    assert by_layer(extend("window:size=100", hybrid, 1.0), "window") == [8, 8, 8, 100]
    for text, name, limit in (
        ("window:size=4:layers=global", "window:layers=global:size=4", None),
        ("window:size=4", "window", 4),
        ("yarn:layers=all", "yarn:layers=all", None),
    ):
        (method,) = methods(text, hybrid, 4.0)
        assert (method.name, method.limit) == (name, limit)


def test_randomized_may_keep_an_earlier_training_length():
    wrapped = build("randomized", inner="rope", max_position=4 * L, inner_length=L)
    assert wrapped.train_length == L
    extended = extend("yarn", wrapped, 4.0)
    close(extended.inner.inv_freq, extend("yarn", rope_of(), 4.0).inv_freq)
    drawn = extended.positions(L, jax.random.key(0))
    assert L < drawn[-1] < 4 * L and (jnp.diff(drawn) > 0).all()


def test_all_formulas_use_one_length_of_randomized():
    """They use max_position, as if the inner encoding was trained that far."""
    wrapped = build("randomized", inner="rope", max_position=4 * L)
    alone = rope_of(dims=Dims(DIMS.heads, DIMS.head_dim, DIMS.width, 4 * L))
    assert wrapped.train_length == 4 * L and wrapped.dims.train_length == L
    for name in ROTARY:
        extended = extend(name, wrapped, 4.0).inner
        expected = extend(name, alone, 4.0)
        np.testing.assert_array_equal(extended.inv_freq, expected.inv_freq)
        np.testing.assert_array_equal(extended.gain, expected.gain)
    scales = extend("logn", wrapped, 1.0).query_scale(jnp.arange(16 * L))
    expected = extend("logn", alone, 1.0).query_scale(jnp.arange(16 * L))
    np.testing.assert_array_equal(scales, expected)
    np.testing.assert_array_equal(scales[: 4 * L], 1)
    close(scales[16 * L - 1], math.log(16 * L) / math.log(4 * L))
    with pytest.raises(ValueError, match="max_position must be at most 16,777,216"):
        build("randomized", max_position=2**24 + 1)


def test_each_layer_and_each_head_is_extended_by_its_own_base():
    bases = [500.0, 1e4, 1e5, 1e6]
    still = rope_of().replace(inv_freq=jnp.zeros(4))
    layers, heads = stack([*(rope_of(base=base) for base in bases), still]), rope_of(base=bases)
    for name in ROTARY:
        by_layer, by_head = extend(name, layers, 4.0), extend(name, heads, 4.0)
        for index, base in enumerate(bases):
            expected = extend(name, rope_of(base=base), 4.0)
            close(by_layer.inv_freq[index], expected.inv_freq)
            close(by_layer.gain[index], expected.gain)
            close(by_head.inv_freq[index], expected.inv_freq)
        np.testing.assert_array_equal(by_layer.inv_freq[-1], 0)


def test_turns_count_rotations_within_the_trained_length():
    rope = rope_of(dims=Dims(1, 32, 32, 128))
    turns = extensions.turns(rope)
    close(turns[0], 128 / (2 * math.pi))
    assert np.sum(turns < 1) == 10


def test_compositions_parse_and_print():
    parts = composition.parts("yarn:1e+3:beta_fast=16:ramp=rotations+logn")
    assert [p.name for p in parts] == ["yarn", "logn"]
    assert parts[0].scale == 1000 and parts[0].options == {"beta_fast": 16, "ramp": "rotations"}
    (part,) = composition.parts("longrope:4:lambdas=1/1.5/2/4")
    assert part.options == {"lambdas": (1, 1.5, 2, 4)}
    assert [type(composition.value(text)) for text in ("1e3", "1.0", "inf")] == [int, float, float]
    for text in ("yarn:8:beta_fast=16+logn", "longrope:4:lambdas=1/1.5/2/4", "abf:base=500000"):
        assert composition.text(composition.parts(text)) == text
    assert composition.with_scale("yarn:beta_fast=16+logn", 8.0) == "yarn:8:beta_fast=16+logn"
    for text in ("yarn:1:2", "yarn:a=1:a=2", "yarn:x", "yarn:", "yarn:=2"):
        with pytest.raises(ValueError):
            composition.parts(text)


def test_options_in_the_text_equal_keyword_options():
    inside = posenc_jax.extend("yarn:4:attention_factor=2+logn", rope_of(), 1.0)
    beside = posenc_jax.extend("yarn+logn", rope_of(), 4.0, attention_factor=2.0)
    assert inside.gain == beside.gain == 2 and inside.logn and beside.logn


def test_extensions_of_different_kinds_compose():
    for text, steps in (
        ("yarn:8+logn", (("yarn", 8.0), ("logn", 1.0))),
        ("logn+yarn:8", (("yarn", 8.0), ("logn", 1.0))),
        ("dynamic_ntk+logn", (("dynamic_ntk", 3.0), ("logn", 1.0))),
        ("yarn+window:size=5", (("yarn", 3.0), ("window:size=5", 1.0))),
    ):
        stepwise = rope_of()
        for name, scale in steps:
            stepwise = posenc_jax.extend(name, stepwise, scale)
        together = posenc_jax.extend(text, rope_of(), 3.0)
        assert jax.tree.structure(stepwise) == jax.tree.structure(together)
        jax.tree.map(np.testing.assert_array_equal, stepwise, together)


def test_canonical_names_omit_scale_and_defaults():
    for text, name in (
        ("logn+yarn:8:beta_fast=32.0:beta_slow=2", "yarn:beta_slow=2+logn"),
        ("window:size=64+dynamic_ntk", "dynamic_ntk+window"),
        ("abf:base=5e5", "abf:base=500000"),
        ("none", "none"),
    ):
        assert extensions.canonical(text) == name


def test_the_window_extension_equals_a_window_of_attention(make_model, make_tokens, forward):
    model, tokens, plain = make_model(), make_tokens(2 * L), rope_of()
    windowed = posenc_jax.extend("window:size=5", plain, 1.0)
    for argument, window in ((None, 5), (3, 3), (9, 5)):
        actual = forward(model, tokens, windowed, window=argument)
        np.testing.assert_array_equal(actual, forward(model, tokens, plain, window=window))
    assert posenc_jax.extend("window", plain, 1.0).window == L
