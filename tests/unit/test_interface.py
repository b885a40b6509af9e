"""Hooks of an encoding beyond phase and bias, in plain and blockwise attention."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import KEY, B, H, K, build, call, qkv
from sizes import DIMS

import posenc_jax
from posenc_jax.attention import attend, blockwise, merge, plain
from posenc_jax.attention.plain import curve_of
from posenc_jax.encoding import Encoding, Tokens
from posenc_jax.layers import Wrapper, bearer, overrides
from posenc_jax.positions import tokens_of_row

pytestmark = pytest.mark.sampled

T = 100
WAYS = [plain, blockwise]
ROW = Tokens(position=jnp.arange(T), contiguous=True)


def heads_major(length=T):
    return [x.swapaxes(1, 2) for x in qkv(length)]


# Attentions over disjoint keys


@pytest.mark.parametrize("way", WAYS)
def test_log_sums_merge_attention_over_disjoint_keys(way):
    q, k, v = heads_major()
    encoding, cut = build("alibi"), 40
    tokens = Tokens(position=jnp.arange(T), order=jnp.arange(T))

    def keys_of(part):
        return jax.tree.map(lambda x: x[part], tokens)

    def whole(q, k, v, encoding):
        out, logsum = plain(q, k, v, encoding, tokens, tokens)
        return jnp.sum(jnp.sin(out)) + jnp.sum(jnp.cos(logsum)), out

    def merged(q, k, v, encoding):
        parts = [
            way(q, k[:, :, part], v[:, :, part], encoding, tokens, keys_of(part))
            for part in (slice(None, cut), slice(cut, None))
        ]
        out, logsum = merge(parts)
        return jnp.sum(jnp.sin(out)) + jnp.sum(jnp.cos(logsum)), out

    found, expected = (
        jax.jit(jax.value_and_grad(f, (0, 1, 2, 3), has_aux=True))(q, k, v, encoding)
        for f in (merged, whole)
    )
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5 * max(1, np.abs(other).max()))


@pytest.mark.parametrize("way", WAYS)
def test_an_empty_region_has_zero_weight_and_finite_gradients(way):
    q, k, v = heads_major(20)
    tokens = Tokens(position=jnp.arange(20), order=jnp.arange(20))
    later = tokens.replace(order=100 + jnp.arange(20))  # no query sees these keys
    nope = build("nope")

    def loss(q, k, v, other):
        seen = way(q, k, v, nope, tokens, tokens)
        unseen = [way(q, other, other, nope, tokens, later)] * 2
        out, logsum = merge([seen, *unseen])
        alone, alone_logsum = plain(q, k, v, nope, tokens, tokens)
        return jnp.sum(out**2) + jnp.sum(logsum), (out - alone, logsum - alone_logsum)

    def nothing(q, other):
        out, logsum = merge([way(q, other, other, nope, tokens, later)] * 2)
        return jnp.sum(out) + 1e-30 * jnp.sum(logsum)

    @jax.jit
    def both(q, k, v, other):
        slopes, differences = jax.grad(loss, (0, 1, 2, 3), has_aux=True)(q, k, v, other)
        return slopes, differences, jax.grad(nothing, (0, 1))(q, other)

    slopes, differences, without = both(q, k, v, k + 1)
    for difference in differences:
        np.testing.assert_allclose(difference, 0, atol=2e-6)
    assert all(np.all(np.isfinite(slope)) for slope in slopes)
    assert np.all(np.asarray(slopes[3]) == 0)
    assert all(np.all(np.asarray(slope) == 0) for slope in without)


# Windows


@pytest.mark.parametrize("how", ["plain", "blockwise"])
def test_the_smaller_window_of_encoding_and_argument_applies(how):
    """The programs are the same."""
    rope, shapes = build("rope"), [jax.ShapeDtypeStruct((B, T, H, K), jnp.float32)] * 3

    def program(encoding, window):
        run = lambda *x: attend(*x, encoding, window=window, implementation=how)  # noqa: E731
        return str(jax.make_jaxpr(run)(*shapes))

    expected = program(rope, 9)
    for of_encoding, argument in ((9, None), (9, 40), (40, 9), (9, 9)):
        assert program(rope.replace(window=of_encoding), argument) == expected
    wrapped = Wrapper(dims=DIMS, inner=rope.replace(window=40), window=9)
    assert program(wrapped, 70) == expected != program(rope, 40)


# Wrappers and custom attention


@pytest.mark.parametrize("name", ["nope", "rope", "alibi", "fire", "fox"])
@pytest.mark.parametrize("way", WAYS)
def test_unused_hooks_cost_nothing(name, way):
    """A wrapper without overrides compiles to the program of its inner encoding."""
    shapes = [jax.ShapeDtypeStruct((B, H, T, K), jnp.float32)] * 3
    inner = build(name)
    row = ROW.replace(features=call(inner, "read", jnp.ones((B, T, DIMS.width))))

    def program(encoding):
        def loss(q, k, v):
            phase = encoding.phase(row.position)
            return jnp.sum(way(q, k, v, encoding, row, row, phase=phase)[0])

        return str(jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(*shapes))

    assert program(Wrapper(dims=DIMS, inner=inner)) == program(inner)


def test_a_wrapper_forwards_every_hook():
    hooks = [name for name in vars(Encoding) if callable(getattr(Encoding, name, None))]
    shared = {"replace", "windowed", "for_rows", "named_parts", "with_parts"}
    hooks = {name for name in hooks if not name.startswith("_")} - shared
    assert hooks <= set(vars(Wrapper)), hooks - set(vars(Wrapper))
    inner = build("rope")
    twice = Wrapper(dims=DIMS, inner=Wrapper(dims=DIMS, inner=inner))
    assert bearer(twice, "phase") is inner and not overrides(twice, "bias")
    logn = posenc_jax.extend("logn", twice, 1.0)
    np.testing.assert_array_equal(
        logn.query_scale(jnp.arange(40)),
        posenc_jax.extend("logn", inner, 1.0).query_scale(jnp.arange(40)),
    )


def test_encodings_of_two_classes_are_two_pytrees():
    """Or jax may run the program of the one for the other."""
    structures = {name: jax.tree.structure(build(name)) for name in posenc_jax.schemes.names()}
    for one, other in itertools.combinations(structures, 2):
        assert structures[one] != structures[other], (one, other)
    assert structures["rope"] == jax.tree.structure(build("rope"))


def test_a_scheme_may_define_its_own_attention():
    class Mean(Encoding):
        def attend(self, q, k, v, q_tokens, k_tokens):
            return jnp.zeros_like(q) + self.window

    mean = Mean(dims=DIMS, window=7)
    wrapped = Wrapper(dims=DIMS, inner=mean)
    for encoding, window, used in ((mean, None, 7), (mean, 3, 3), (wrapped, 3, 3)):
        assert np.all(attend(*qkv(3), encoding, window=window) == used)


def test_random_positions_have_no_curve():
    even, random = (build("randomized", inner="alibi", evenly=evenly) for evenly in (True, False))
    for each, key, has_curve in ((random, None, True), (random, KEY, False), (even, None, False)):
        row = tokens_of_row(each, B, 8, key)
        assert row.contiguous == has_curve == (curve_of(each, row, row) is not None)


def test_missing_or_unused_features_are_refused():
    fox = build("fox")
    features = call(fox, "read", np.zeros((B, T, DIMS.width), np.float32))
    for encoding, given, message in (
        (fox, None, r"'fox' reads the layer's input .* features=encoding.read\(x\)"),
        (build("rope"), features, "'rope' takes no features"),
        (fox, jax.tree.map(lambda x: x[:, 1:], features), r"must be \[2, 100, ...\]"),
        (build("hybrid"), None, "layers of encoding 'hybrid' differ"),
    ):
        with pytest.raises(ValueError, match=message):
            attend(*qkv(T), encoding, features=given)
