"""Encodings: initial values, gradients, precision, and pairs and frequencies of RoPE."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import KEY, build, call, close, compiled, qkv
from sizes import DIMS, L, with_options

import posenc_jax
from posenc_jax import extensions, schemes
from posenc_jax.attention import attend, rotate
from posenc_jax.encoding import Dims
from posenc_jax.evaluation import diagnostics
from posenc_jax.positions import positions_of_row
from posenc_jax.schemes import _rotation, t5
from posenc_jax.schemes import rope as module

pytestmark = pytest.mark.sampled

bucket = jax.jit(t5.bucket, static_argnums=(1, 2))


def test_alibi_takes_its_slopes_as_numbers():
    slopes = [0.5, 0.25, 0.125]
    built = build("alibi", Dims(3, 8, 24, 16), slopes=slopes)
    close(built.bias(np.array([5]), np.array([3]))[:, 0, 0], -2 * np.array(slopes), rtol=1e-6)


def test_t5_bias_is_its_table_entry_times_sqrt_k():
    encoding = build("t5", num_buckets=8, max_distance=20)
    bias = np.asarray(call(encoding, "bias", np.arange(40), np.arange(40)))
    buckets, table = np.asarray(bucket(np.arange(40), 8, 20)), np.asarray(encoding.table)
    for q, k in ((0, 0), (5, 2), (39, 0), (30, 13)):
        expected = table[buckets[q - k]]
        np.testing.assert_allclose(bias[:, q, k], np.sqrt(DIMS.head_dim) * expected, rtol=1e-6)


def test_t5_starts_with_a_noticeable_bias_and_keeps_its_scale():
    """The bias of every head and bucket starts as sqrt(K) times a normal draw of 0.2."""
    wide = Dims(400, 16, 6_400, 16)
    bias = call(build("t5", wide), "curve", np.arange(200))
    assert abs(np.std(bias) - 4 * 0.2) < 0.02
    unscaled = build("t5", scale=1.0)
    expected = np.asarray(unscaled.table)[np.asarray(bucket(np.arange(200), 32, 128))].T
    np.testing.assert_array_equal(call(unscaled, "curve", np.arange(200)), expected)


def test_kerple_starts_within_the_ranges_of_the_paper():
    dims = Dims(2000, 8, 16_000, 16)
    log, power = (build(name, dims) for name in ("kerple_log", "kerple_power"))
    for draws, top in (
        (np.exp(log.log_r1), 2),
        (np.exp(log.log_r2), 1),
        (np.exp(power.log_r1), 1),
        (2 / (1 + np.exp(-np.asarray(power.logit_p))), 2),
    ):
        assert 0 < draws.min() < 0.02 * top and 0.98 * top < draws.max() <= top
        assert abs(draws.mean() - top / 2) < 0.05 * top


def test_gradients_of_fire_are_those_of_its_formula():
    """The bias has a gradient of its own; differentiate the formula as it is written."""
    encoding = build("fire")
    encoding = encoding.replace(log_threshold=np.float32(np.log(20)))
    q, k = np.array([0, 3, 23, 24, 250, 900]), np.arange(0, 900, 7)
    cotangent = np.float32(np.random.default_rng(0).normal(size=(DIMS.heads, len(q), len(k))))

    def written(encoding):
        c = jnp.exp(encoding.log_c)
        threshold = jnp.exp(encoding.log_threshold) * DIMS.train_length
        distance = jnp.maximum(q[:, None] - k[None, :], 0)
        normal = jnp.log1p(c * jnp.maximum(threshold, q))[:, None]
        share = (jnp.log1p(c * distance) / normal)[..., None]
        unit = (1, 1, -1)
        hidden = encoding.hidden_kernel.reshape(unit) * share + encoding.hidden_bias.reshape(unit)
        return jnp.transpose(jax.nn.relu(hidden) @ encoding.kernel, (2, 0, 1))

    @jax.jit
    def gradients(encoding):
        ways = lambda encoding: encoding.bias(q, k), written  # noqa: E731
        loss = lambda way: lambda encoding: jnp.sum(way(encoding) * cotangent)  # noqa: E731
        return [jax.grad(loss(way))(encoding) for way in ways]

    ours, expected = gradients(encoding)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert np.abs(other).max() > 0.01
        close(one, other, 2e-5 * np.abs(other).max(), rtol=0)


def test_fire_starts_as_in_the_paper():
    encoding = build("fire")
    close(np.exp(encoding.log_c), 0.1, rtol=1e-6)
    close(np.exp(encoding.log_threshold) * encoding.train_length, DIMS.train_length, rtol=1e-6)
    assert encoding.hidden_kernel.shape == (32,)


@pytest.mark.slow
def test_sinusoidal_positions_and_content_start_at_similar_scale(make_model):
    encoding, model = build("sinusoidal"), make_model()
    content = model.embed(jnp.arange(19))[None] * DIMS.width**0.5
    position = encoding.embed(jnp.zeros((1, 64, DIMS.width)), jnp.arange(64))
    assert 0.5 < jnp.std(content) / jnp.std(position) < 2


def test_rope_layouts_agree_up_to_a_permutation():
    x = jax.random.normal(KEY, (1, 1, 9, DIMS.head_dim))
    order = jnp.arange(DIMS.head_dim).reshape(2, -1).T.reshape(-1)  # half -> interleaved
    half, interleaved = (
        build("rope", layout=layout).phase(jnp.arange(9)) for layout in ("half", "interleaved")
    )
    turned = rotate(x, half.q_cos, half.q_sin, "half")[..., order]
    turned_interleaved = rotate(x[..., order], interleaved.q_cos, interleaved.q_sin, "interleaved")
    np.testing.assert_array_equal(turned, turned_interleaved)


@pytest.mark.parametrize("start", [0, 1_000, 261_000, 2**20, 2**24 - 1_023])
def test_angles_and_their_gradients_are_exact_at_large_positions(start):
    freq = np.float32(10_000.0 ** (-np.arange(64) / 64))
    places = start + np.arange(1_024)[:, None]
    cos, sin = jax.jit(_rotation.cos_sin)(places, freq[None])
    angle = places * freq.astype(np.float64)[None]
    close((cos, sin), (np.cos(angle), np.sin(angle)), rtol=0, atol=6e-6)
    by_freq = functools.partial(jax.jvp, lambda freq: _rotation.cos_sin(places, freq))
    _, slopes = jax.jit(by_freq)((freq[None],), (np.ones_like(freq)[None],))
    expected = (-places * np.sin(angle), places * np.cos(angle))
    close(slopes, expected, rtol=0, atol=6e-6 * max(1, places.max()))


def test_xpos_refuses_positions_that_would_overflow():
    encoding = build("xpos")
    assert 65_536 < encoding.reach < 72_600
    for value in jax.tree.leaves(call(encoding, "phase", np.array([0, encoding.reach - 1]))):
        assert np.all(np.isfinite(100 * np.asarray(value))) and np.abs(value).max() > 0
    beyond = np.array([0, encoding.reach])
    with pytest.raises(ValueError, match="'xpos' reaches"):
        encoding.phase(beyond)
    assert np.all(np.isnan(call(encoding, "phase", beyond).q_cos))  # unknown under jit


def test_learned_positions_beyond_the_table_are_nan_or_refused():
    encoding = build("learned")
    zeros, places = np.zeros((1, 3, DIMS.width), np.float32), np.array([1, DIMS.train_length, -1])
    out = np.asarray(call(encoding, "embed", zeros, places))  # under jit positions are unknown
    np.testing.assert_array_equal(out[0, 0], np.asarray(encoding.table)[1])
    assert np.all(np.isnan(out[0, 1:]))
    with pytest.raises(ValueError, match="reaches 16 positions, fewer than 17"):
        encoding.embed(zeros, places)


def test_a_learned_table_starts_at_0_02():
    table = build("learned", Dims(64, 8, 64, 64)).table
    assert abs(np.std(table) - 0.02) < 0.002


class TestRandomized:
    def build(self, **options):
        return build("randomized", max_position=100, **options)

    def test_draws_ascend_without_repetition_over_the_whole_range(self):
        encoding = self.build()
        keys = jax.random.split(KEY, 200)
        draws = np.asarray(jax.jit(jax.vmap(lambda key: encoding.positions(16, key)))(keys))
        assert np.all(np.diff(draws) > 0)
        assert draws.min() == 0 and draws.max() == 99
        assert abs(draws.mean() - 49.5) < 1.5

    def test_positions_without_a_key_are_plain_or_even(self):
        np.testing.assert_array_equal(self.build().positions(16), np.arange(16))
        even = self.build(evenly=True).positions(16)
        np.testing.assert_array_equal(even, np.arange(16) * 100 // 16)
        with pytest.raises(ValueError, match="reaches 100 positions"):
            self.build(evenly=True).positions(101)

    @pytest.mark.parametrize("chunks", [2, 4])
    def test_chunks_of_a_row_jump_over_the_whole_range(self, chunks):
        encoding = self.build(positions="chunks", chunks=chunks)
        keys = jax.random.split(KEY, 500)
        draws = np.asarray(jax.jit(jax.vmap(lambda key: encoding.positions(16, key)))(keys))
        steps = np.diff(draws)
        assert np.all(draws[:, 0] == 0) and np.all(steps >= 1) and draws.max() == 99
        assert np.all((steps > 1).sum(1) <= chunks - 1)
        assert set(np.unique(np.nonzero(steps > 1)[1])) == set(range(15))  # cut anywhere
        if chunks == 2:  # the jump is uniform over 0, 1, ..., 100 - 16
            jumps = draws[:, -1] - 15
            assert abs(jumps.mean() - 42) < 4 and jumps.min() == 0

    def test_a_tail_stands_at_the_end_of_the_range(self):
        found = self.build(tail=3).positions(16, KEY)
        np.testing.assert_array_equal(found, [*range(13), 97, 98, 99])

    @pytest.mark.parametrize(
        ("options", "length", "problem"),
        [
            (dict(positions="chunks", chunks=17), 16, "of 16 tokens is too short"),
            (dict(tail=16), 16, "of 16 tokens is too short .* needs 17"),
            (dict(tail=2), 100, "which fill max_position = 100"),
            (dict(tail=2, positions="chunks"), 16, "goes without positions"),
        ],
    )
    def test_jumps_that_do_not_fit_are_refused(self, options, length, problem):
        with pytest.raises(ValueError, match=problem):
            self.build(**options).positions(length, KEY)

    def test_packed_documents_begin_at_0_and_jump_where_the_row_does(self):
        encoding = self.build(positions="chunks")
        row, segments = encoding.positions(16, KEY), jnp.array([[0] * 4 + [1] * 12])
        found = positions_of_row(encoding, 16, KEY, segments)[0]
        np.testing.assert_array_equal(found, [*row[:4], *row[:12]])

    @pytest.mark.parametrize("inner", ["nope", "fox", "cope", "stick_breaking", "selective_rope"])
    def test_jumps_are_refused_where_an_encoding_reads_no_positions(self, inner):
        with pytest.raises(ValueError, match="which reads none"):
            self.build(inner=inner, positions="chunks")
        assert self.build(inner="relative", tail=2).tail == 2

    def test_drawing_more_positions_than_max_position_is_refused(self):
        with pytest.raises(ValueError, match="cannot draw 101 different positions"):
            self.build().positions(101, KEY)

    @pytest.mark.parametrize("inner", sorted({*schemes.names()} - {"randomized"}))
    def test_any_other_encoding_can_be_wrapped(self, inner, make_model, make_tokens, forward):
        encoding = self.build(inner=inner)
        model, tokens = make_model(), make_tokens(16)
        first, second = (
            np.asarray(forward(model, tokens, encoding, key=jax.random.key(i))) for i in (1, 2)
        )
        assert np.all(np.isfinite(first))
        by_content = ("fox", "stick_breaking", "cope", "selective_rope")
        assert np.any(first != second) == (inner not in ("nope", *by_content))

    @pytest.mark.parametrize("inner", ["rope", "t5", "learned"])
    def test_without_a_key_randomized_equals_its_inner_encoding(
        self, inner, make_model, make_tokens, forward
    ):
        model, tokens = make_model(), make_tokens(16)
        plain = build(inner, Dims(4, 8, 32, 100))
        ours = forward(model, tokens, self.build(inner=inner))
        np.testing.assert_allclose(ours, forward(model, tokens, plain), atol=1e-6)


# Rotating pairs and trained frequencies of RoPE


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
    both = posenc_jax.extend("drop:clip=soft+yarn:8", rope_of(), 1.0)
    alone, yarn = (posenc_jax.extend(t, rope_of(), 8.0) for t in ("drop:clip=soft", "yarn"))
    share = alone.inv_freq / rope_of().inv_freq  # of each pair, with any extension
    np.testing.assert_allclose(both.inv_freq, yarn.inv_freq * share, rtol=1e-6)
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
