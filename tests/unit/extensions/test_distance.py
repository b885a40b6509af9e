"""Remapped distances: tables, attention and errors."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import H, K, build, compiled, documents, mixed, qkv, scores_of
from sizes import DIMS, L

import posenc_jax
from posenc_jax import extensions
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims
from posenc_jax.evaluation.methods import methods, mistakes

pytestmark = pytest.mark.sampled

NAMES = ["rerope", "leaky_rerope", "self_extend", "dca", "lm_infinite", "streaming"]
ROPE = build("rope")


@pytest.mark.parametrize("scale", [1, 2, 5, 8])
@pytest.mark.parametrize("trained", [16, 100])
def test_remapped_distances_stay_within_their_bound(scale, trained):
    read = scale * trained
    for name, most in (("self_extend", 2 * trained / 3), ("leaky_rerope", trained)):
        table = extensions.distances(name, read, trained)
        back = np.subtract.outer(np.arange(read), np.arange(read))
        if scale == 1:
            np.testing.assert_allclose(table, np.maximum(back, -1), atol=1e-9)
        else:
            assert 0.75 * most < table.max() <= most
    assert extensions.distances("dca", read, trained).max() == 3 * trained // 4
    for name in ("lm_infinite", "streaming"):
        assert extensions.distances(name, read, trained).max() <= trained


def test_self_extend_chooses_the_smallest_sufficient_group():
    for length, scale in ((96, 2.0), (96, 3.5), (128, 8.0), (50, 7.0)):
        near = length // 4
        group = float(posenc_jax.extend("self_extend", rope_of(length), scale).group)
        room = 2 * length / 3
        assert near + (scale * length - near) / group <= room + 1e-9
        assert near + (scale * length - near) / (group - 1) > room


@pytest.mark.parametrize("group", [41, 49, 98])
def test_groups_begin_at_multiples_of_their_size(group):
    """XLA may divide by multiplying with a rounded 1 / group."""
    place, near, length = np.arange(6 * group), 16, 64
    distance = np.subtract.outer(place, place)
    grouped = np.subtract.outer(place // group, place // group) + near - near // group
    expected = np.where(distance < near, np.maximum(distance, -1), grouped)
    found = extensions.distances("self_extend", len(place), length, group=group, window=near)
    np.testing.assert_array_equal(found, expected)
    encoding = posenc_jax.extend("self_extend", rope_of(length), 6.0, group=group, window=near)
    q, k, v = qkv(len(place), groups=2)
    exact = by_hand(q, k, v, expected, ROPE.inv_freq, np.ones(len(place)))
    inside = jax.jit(lambda *x: attend(*x, encoding))
    for out in (inside(q, k, v), compiled(q, k, v, encoding)):
        np.testing.assert_allclose(out, exact, atol=2e-5)


def rope_of(length):
    return build("rope", Dims(H, K, DIMS.width, length))


# Attention


def by_hand(q, k, v, table, inv_freq, factor):  # in float64; factor [T], on the logits of a query
    q, k = (np.float64(x) for x in (q, np.repeat(k, H // k.shape[2], axis=2)))
    q, k = (x[..., : K // 2] + 1j * x[..., K // 2 :] for x in (q, k))
    turned = np.exp(1j * table[:, :, None] * np.float64(inv_freq))
    scores = np.einsum("bihp,bjhp,ijp->bhij", q, k.conj(), turned).real / K**0.5
    return mixed(scores * factor[:, None], table >= 0, v)


CASES = [
    ("rerope", {}),
    ("leaky_rerope", {}),
    ("self_extend", {}),
    ("self_extend", {"floor": False, "group": 3}),
    ("dca", {}),
    ("lm_infinite", {"limit": 30, "first": 3}),
    ("lm_infinite", {"limit": 5}),
    ("streaming", {}),
    ("self_extend+logn", {}),
    ("leaky_rerope+window:size=25", {}),
    ("dca+window:size=25", {}),
]


@pytest.mark.parametrize("how", ["plain", "blockwise"])
@pytest.mark.parametrize("length", [40, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_attention_uses_the_distances_of_the_table(name, options, length, how):
    place = np.arange(length)
    table = extensions.distances(name, length, L, **options)
    factor = np.ones(length)
    if "rerope" == name or "logn" in name:
        factor = np.maximum(1, np.log1p(place) / math.log(L))
    if "dca" in name:
        factor = factor * (0.05 * math.log(length / L) + 1) ** 2
    q, k, v = qkv(length, groups=2)
    encoding = posenc_jax.extend(name, ROPE, length / L, **options)
    run = jax.jit(functools.partial(attend, implementation=how))
    expected = by_hand(q, k, v, table, ROPE.inv_freq, factor)
    np.testing.assert_allclose(run(q, k, v, encoding), expected, atol=5e-6)
    np.testing.assert_allclose(run(q[:, -3:], k, v, encoding), expected[:, -3:], atol=5e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [70, pytest.param(600, marks=pytest.mark.slow)])
def test_blockwise_gradients_match_plain_ones(name, length):
    encoding = posenc_jax.extend(name, ROPE, length / L)
    segments = jnp.array([[0] * 30 + [1] * (length - 30), [0] * length])

    def gradients(how):
        def loss(q, k, v, encoding):
            out = attend(q, k, v, encoding, segments=segments, implementation=how)
            return jnp.sum(jnp.sin(out))

        return jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*qkv(length, groups=2), encoding)

    ours, theirs = gradients("blockwise"), gradients("plain")
    for actual, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-4 * max(1, np.abs(expected).max()))
        assert np.all(np.isfinite(actual))


@pytest.mark.parametrize("name", NAMES)
def test_distances_restart_with_every_document(name):
    encoding, (q, k, v) = posenc_jax.extend(name, ROPE, 4.0), qkv(70, groups=2)
    segments, parts = documents(70, 30), (slice(0, 30), slice(30, 70))

    @jax.jit
    def run():
        ways = ("plain", "blockwise")
        packed = [attend(q, k, v, encoding, segments=segments, implementation=how) for how in ways]
        return packed, [attend(*(x[:, part] for x in (q, k, v)), encoding) for part in parts]

    packed, alone = run()
    for out in packed:
        np.testing.assert_allclose(out, jnp.concatenate(alone, axis=1), atol=2e-6)


@pytest.mark.parametrize("name", ["lm_infinite", "streaming"])
def test_distance_biases_apply_to_first_tokens(name):
    alibi = build("alibi")
    table = extensions.distances(name, 70, L)
    q, k, v = qkv(70, groups=2)
    out = jax.jit(attend)(q, k, v, posenc_jax.extend(name + "+logn", alibi, 1.0))
    bias = -np.float64(alibi.slopes)[:, None, None] * table
    factor = np.maximum(1, np.log1p(np.arange(70)) / math.log(L))
    expected = mixed(scores_of(q, k) * factor[:, None] + bias, table >= 0, v)
    np.testing.assert_allclose(out, expected, atol=5e-6)


@pytest.mark.parametrize("name", NAMES)
def test_remapping_is_the_identity_within_its_window(name):
    length = {"rerope": 8, "leaky_rerope": 8, "self_extend": 4, "dca": 10, "streaming": 16}
    q, k, v = qkv(length.get(name, L), groups=2)
    extended = posenc_jax.extend(name, ROPE, 1.0)
    np.testing.assert_allclose(compiled(q, k, v, extended), compiled(q, k, v, ROPE), atol=1e-6)


@pytest.mark.parametrize("name", ["leaky_rerope", "self_extend", "dca"])
def test_one_program_serves_every_scale(name):
    program = jax.jit(lambda encoding: attend(*qkv(40, groups=2), encoding))
    outs = [program(posenc_jax.extend(name, ROPE, scale)) for scale in (1.0, 2.5, 8.0)]
    assert program._cache_size() == 1
    assert len({np.asarray(out).tobytes() for out in outs}) == 3


# Fit and errors


def test_remapping_fits_rope_and_some_of_it_fits_biases():
    """Gates by distance have a bias; remapping RoPE alone would give it another distance."""
    first = {"lm_infinite", "streaming"}
    for name, options, fitting in (
        ("rope", {}, {*NAMES}),
        ("nope", {}, set()),
        ("sinusoidal", {}, set()),
        ("alibi", {}, first),
        ("ssmax", {"inner": "rope"}, {*NAMES}),
        ("ssmax", {"inner": "alibi", "kind": "inkling"}, set()),
        ("ssmax", {"inner": "fox:inner=rope", "kind": "inkling"}, set()),
        ("randomized", {"inner": "rope"}, set()),
        ("fox", {"inner": "rope"}, {*NAMES}),
        ("fox", {"inner": "rope", "gate": "bias_only"}, first),
        ("fox", {"inner": "rope", "gate": "fixed"}, first),
    ):
        encoding = build(name, **options)
        assert {*NAMES} & {*extensions.fitting(encoding)} == fitting, (name, options)


def test_each_layer_of_a_stack_is_remapped():
    bases = [build("rope", base=base) for base in (100.0, 1e4)]
    stacked = posenc_jax.extend("self_extend", posenc_jax.stack(bases), 4.0)
    assert stacked.layers == 2 and stacked.group.shape == (2,)
    q, k, v = qkv(40, groups=2)
    for index, base in enumerate(bases):
        alone = compiled(q, k, v, posenc_jax.extend("self_extend", base, 4.0))
        np.testing.assert_array_equal(compiled(q, k, v, stacked.layer(index)), alone)


def test_evaluation_includes_remapped_distances():
    chosen = {method.name: method for method in methods("all", ROPE, 8.0)}
    assert set(NAMES) <= set(chosen)
    assert all(chosen[name].scale is None and chosen[name].limit is None for name in NAMES)
    (method,) = methods("self_extend:group=6:window=4+logn", ROPE, 8.0)
    assert method.name == "self_extend:group=6:window=4+logn"
    assert method.applied(ROPE, ROPE, 2.0).group == 6
    (mistake,) = mistakes("self_extend:4")
    assert "self_extend takes no scale" in mistake
