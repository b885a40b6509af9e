"""Rotating pairs and trained frequencies of RoPE."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import build, compiled, qkv
from sizes import DIMS, L, with_options

import posenc_jax
from posenc_jax import extensions
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims
from posenc_jax.evaluation import diagnostics
from posenc_jax.schemes import rope as module

pytestmark = pytest.mark.sampled

LAYERS = Dims(DIMS.heads, DIMS.head_dim, DIMS.width, L, layers=3)
ALPHA = jnp.array([0.3, -0.2, 0.1, 0.7])
SCALES = ("pi", "ntk", "ntk_by_parts", "yarn", "llama3", "longrope", "abf")


def rope_of(dims=DIMS, **options):
    return build("rope", dims, **options)


def extend(name, rope, scale=4.0):
    return posenc_jax.extend(with_options(name, rope.name), rope, scale)


def attended(encoding):
    return compiled(*qkv(5 * L), encoding)


def test_imaginary_scores_are_those_of_a_turned_query():
    """Extensions keep it: the imaginary heads of a query equal the real ones of i times it."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(3, 1, 40, DIMS.heads, DIMS.head_dim)), jnp.float32)
    half = DIMS.head_dim // 2
    turned = jnp.concatenate([x[0, ..., half:], -x[0, ..., :half]], axis=-1)  # -i times
    for name in ("none", "yarn", "self_extend"):
        both, real = (extend(name, rope_of(imaginary=own)) for own in (True, False))
        out, plain, other = attend(*x, both), attend(*x, real), attend(turned, *x[1:], real)
        np.testing.assert_allclose(out[:, :, :2], plain[:, :, :2], atol=1e-6)
        np.testing.assert_allclose(out[:, :, 2:], other[:, :, 2:], atol=1e-6)
    with pytest.raises(ValueError, match="needs an even number of heads; got 3"):
        rope_of(Dims(3, 8, 24, L), imaginary=True)


def test_extensions_see_a_rope_of_twice_the_entries_in_pope():
    pope = build("pope")
    rope = rope_of(Dims(DIMS.heads, 2 * DIMS.head_dim, DIMS.width, L))
    for name in SCALES:
        text = with_options(name, "pope")
        ours, theirs = (posenc_jax.extend(text, one, 4.0) for one in (pope, rope))
        np.testing.assert_array_equal(ours.inv_freq, theirs.inv_freq)
        assert ours.gain == theirs.gain and ours.base == theirs.base


def test_pope_turns_queries_alone_by_its_biases():
    """Heads that share keys have each their own biases, which a rotated cache holds too."""
    rng = np.random.default_rng(0)
    q, k, v = (
        jnp.asarray(rng.normal(size=(1, 9, heads, DIMS.head_dim)), jnp.float32)
        for heads in (DIMS.heads, 2, 2)
    )
    pope = build("pope")
    pope = pope.replace(shift=jnp.asarray(rng.uniform(-8, 1, pope.shift.shape), jnp.float32))
    each = [jnp.repeat(x, DIMS.heads // 2, axis=2) for x in (k, v)]
    np.testing.assert_allclose(attend(q, k, v, pope), attend(q, *each, pope), atol=1e-6)
    assert pope.phase(jnp.arange(9)).k_cos.shape[1] == 1
    with pytest.raises(ValueError, match="'pope' turns whole heads and does not fit a latent"):
        posenc_jax.build("pope", dataclasses.replace(DIMS, rotary_dim=4))


def test_keeping_all_pairs_equals_rope_and_none_equals_nope():
    assert jax.tree.all(jax.tree.map(jnp.array_equal, rope_of(keep=1), rope_of()))
    nope = build("nope")
    np.testing.assert_allclose(attended(rope_of(keep=0.0)), attended(nope), atol=1e-6)


def test_each_head_keeps_the_rotating_pairs_of_its_base():
    bases = [20.0, 1e3, 1e4, 1e6]
    together = rope_of(base=bases, keep="turned").inv_freq
    for row, base in zip(together, bases, strict=True):
        np.testing.assert_array_equal(row, rope_of(base=base, keep="turned").inv_freq)
    assert len({int(jnp.sum(row > 0)) for row in together}) > 1


@pytest.mark.parametrize("keep", [0.75, "turned"])
@pytest.mark.parametrize("name", SCALES)
def test_extensions_treat_kept_pairs_as_in_rope(name, keep):
    all_pairs, kept_pairs = (extend(name, rope) for rope in (rope_of(), rope_of(keep=keep)))
    turns = rope_of(keep=keep).inv_freq > 0
    assert 0 < turns.sum() < len(turns)
    np.testing.assert_array_equal(kept_pairs.inv_freq, jnp.where(turns, all_pairs.inv_freq, 0))
    assert kept_pairs.gain == all_pairs.gain


def test_dropping_pairs_equals_building_without_them():
    for keep in ("turned", 0.5):
        dropped = posenc_jax.extend("drop", rope_of(), 1.0, keep=keep)
        np.testing.assert_array_equal(dropped.inv_freq, rope_of(keep=keep).inv_freq)
    both = posenc_jax.extend("drop+yarn:8", rope_of(), 1.0)
    one_by_one = posenc_jax.extend("yarn", posenc_jax.extend("drop", rope_of(), 1.0), 8.0)
    trained_without = posenc_jax.extend("yarn", rope_of(keep="turned"), 8.0)
    for other in (one_by_one, trained_without):
        np.testing.assert_array_equal(both.inv_freq, other.inv_freq)
        assert both.gain == other.gain
    with pytest.raises(ValueError, match=r"already extended.*\(drop\)"):
        posenc_jax.extend("drop:keep=0.25", both, 1.0)
    less = posenc_jax.extend("drop:keep=0.25", rope_of(keep=0.75), 1.0)
    assert int(jnp.sum(less.inv_freq > 0)) == 1
    still = posenc_jax.extend("drop:keep=0", rope_of(), 1.0)
    nope = build("nope")
    np.testing.assert_allclose(attended(still), attended(nope), atol=1e-6)


def test_untrained_frequencies_equal_those_of_rope():
    for per in ("none", "head"):
        freq = rope_of(frequencies="trained", per=per).freq
        np.testing.assert_array_equal(freq, jnp.broadcast_to(rope_of().freq, freq.shape))
    trained = rope_of(frequencies="trained")
    np.testing.assert_array_equal(attended(trained), attended(rope_of()))


@pytest.mark.slow
def test_alpha_multiplies_the_frequencies():
    trained = rope_of(frequencies="trained").replace(alpha=jnp.full(4, np.log(2.0)))
    np.testing.assert_allclose(trained.freq, 2 * rope_of().freq, rtol=1e-6)
    twice = rope_of().replace(inv_freq=trained.freq)
    np.testing.assert_array_equal(attended(trained), attended(twice))

    def loss(rope):
        return jnp.sum(attended(rope) ** 2)

    by_alpha = jax.grad(loss)(trained).alpha
    by_frequency = jax.grad(loss)(twice).inv_freq
    np.testing.assert_allclose(by_alpha, by_frequency * twice.inv_freq, rtol=1e-4, atol=1e-6)
    assert jnp.all(by_alpha != 0)


@pytest.mark.parametrize(
    ("per", "base", "shape"),
    [
        ("none", 1e4, (4,)),
        ("none", [1e3, 1e4, 1e5, 1e6], (1, 4)),
        ("layer", 1e4, (3, 4)),
        ("head", 1e4, (DIMS.heads, 4)),
    ],
)
def test_trained_frequencies_are_shared_or_per_layer_or_per_head(per, base, shape):
    rope = rope_of(LAYERS, frequencies="trained", per=per, base=base)
    trained, _ = posenc_jax.partition(rope)
    (alpha,) = jax.tree.leaves(trained)
    assert alpha.shape == shape and rope.layers == (3 if per == "layer" else None)
    moved = rope.replace(alpha=rope.alpha + 0.1 * jnp.arange(rope.alpha.size).reshape(shape))
    expected = rope.inv_freq * jnp.exp(moved.alpha)
    np.testing.assert_allclose(moved.freq, expected, rtol=1e-6)
    phase = moved.layer(1).phase(jnp.arange(1, 3))
    np.testing.assert_allclose(
        jnp.squeeze(phase.q_cos[0, :, 0]),
        jnp.cos(moved.freq[1] if per == "layer" else moved.freq),
        atol=1e-6,
    )


def test_a_stack_trains_frequencies_per_layer_and_head():
    rope = posenc_jax.schemes.build_per_layer(
        "rope", LAYERS, jax.random.key(0), frequencies="trained", per="head"
    )
    assert rope.alpha.shape == (3, DIMS.heads, 4)


@pytest.mark.parametrize("per", ["none", "layer", "head"])
@pytest.mark.parametrize("name", [*SCALES, "drop"])
def test_extensions_scale_trained_frequencies_like_fixed_ones(name, per):
    rope = rope_of(LAYERS, frequencies="trained", per=per)
    rope = rope.replace(alpha=jnp.broadcast_to(ALPHA, rope.alpha.shape))
    extended, fixed = (extend(name, each) for each in (rope, rope_of()))
    expected = jnp.broadcast_to(fixed.inv_freq * jnp.exp(ALPHA), extended.freq.shape)
    np.testing.assert_allclose(extended.freq, expected, rtol=1e-6)
    np.testing.assert_array_equal(extended.alpha, rope.alpha)
    with pytest.raises(ValueError, match="already extended"):
        extend(name, extended, 2.0)


def test_the_spectrum_uses_the_trained_frequencies():
    rope = rope_of(frequencies="trained").replace(alpha=ALPHA)
    _, turns = diagnostics.spectrum(rope)
    np.testing.assert_allclose(turns[0], L * rope.freq / (2 * np.pi), rtol=1e-6)
    np.testing.assert_allclose(extensions.turns(rope), extensions.turns(rope_of()))
    assert diagnostics.rotary(build("ssmax")).name == "rope"
    assert module.check_keep(np.float32(0.5)) == 0.5
