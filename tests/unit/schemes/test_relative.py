"""Inkling's relative bias: its extent, blocks without a gather, and factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import B, call, content, documents, mixed, qkv, scores_of, visible
from jaxprs import equations
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.schemes.ssmax import temperature

pytestmark = pytest.mark.sampled

KEY = jax.random.key(0)


def build(dims=DIMS, **options):
    return posenc_jax.build("relative", dims, KEY, **options)


def row(length, features, **fields):
    return Tokens(np.arange(length), features=features, **fields)


@pytest.mark.parametrize("nearest", [0, 3, 9, 10, 25, 1_000])
def test_the_skew_equals_the_gather_at_every_distance(nearest):
    encoding = build(extent=10)
    features = np.asarray(call(encoding, "read", content(B, 7, DIMS.width))["rows"])
    q = Tokens(nearest + np.arange(7), features={"rows": features})
    k = Tokens(np.arange(5), features={"rows": features[:, :5]})
    expected = np.asarray(call(encoding, "bias", q, k))
    actual = call(encoding, "bias", q.replace(contiguous=True), k.replace(contiguous=True))
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert np.any(expected != 0) == (nearest < 14)


def test_bare_positions_have_no_bias_and_tokens_need_features():
    encoding = build()
    assert encoding.bias(jnp.arange(3), jnp.arange(3)) is None
    with pytest.raises(ValueError, match=r"features=encoding.read\(x\), x the layer's input"):
        encoding.bias(row(3, None), row(3, None))


def test_attention_adds_the_bias():
    length, window, cut = 150, 70, 60
    encoding, (q, k, v) = build(extent=50), qkv(length, groups=2)
    x = jax.random.normal(KEY, (B, length, DIMS.width))
    segments = documents(length, cut)

    def run(how, encoding, x):
        options = dict(window=window, segments=segments, implementation=how)
        return attend(q, k, v, encoding, features=encoding.read(x), **options)

    def both(how):
        def loss(encoding, x):
            return jnp.sum(jnp.sin(3 * run(how, encoding, x)))

        return jax.jit(jax.value_and_grad(loss, (0, 1)))(encoding, x)

    r = np.einsum("btd,dhr->bhtr", np.float64(x), np.float64(encoding.kernel))
    back = np.arange(length)[:, None] - np.arange(length)
    padded = np.pad(np.float64(encoding.profiles), ((0, 0), (0, length)))
    scores = np.einsum("bhir,rij->bhij", r, padded[:, np.maximum(back, 0)])
    seen = visible(length, length, window, cut)
    expected = mixed(scores + scores_of(q, k), seen, v)
    np.testing.assert_allclose(
        jax.jit(run, static_argnums=0)("auto", encoding, x), expected, atol=1e-5
    )
    for ours, theirs in zip(*map(jax.tree.leaves, (both("blockwise"), both("plain"))), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * max(1, jnp.abs(theirs).max()))


def test_blocks_of_whole_rows_gather_nothing():
    encoding, (q, k, v) = build(), qkv(300)
    x = jax.random.normal(KEY, (B, 300, DIMS.width))

    def loss(encoding):
        return jnp.sum(attend(q, k, v, encoding, features=encoding.read(x)))

    found = equations(jax.make_jaxpr(jax.grad(loss))(encoding).jaxpr)
    names = ("gather", "scatter-add")  # of profiles alone, not of every query and key
    sizes = [e.outvars[0].aval.size for e in found if e.primitive.name in names]
    assert sizes and max(sizes) < 128 * 128


def test_inklings_temperature_scales_the_bias_too():
    encoding = posenc_jax.build("ssmax", DIMS, KEY, kind="inkling", inner="relative", a=0.5)
    length = 3 * L
    tokens = row(length, call(encoding, "read", content(B, length, DIMS.width)))
    tau = np.asarray(temperature("inkling", np.arange(length), L, 0.5))[None, None, :, None]
    expected = np.asarray(call(encoding.inner, "bias", tokens, tokens)) * tau
    np.testing.assert_allclose(call(encoding, "bias", tokens, tokens), expected, rtol=1e-6)
    assert tau.max() > 1.1


def test_biases_start_at_similar_scale_at_every_distance():
    start = build(Dims(64, 8, 512, 64))
    tokens = row(64, call(start, "read", content(1, 64, 512)))
    assert 0.15 < np.std(np.asarray(call(start, "bias", tokens, tokens))[..., -1, :]) < 0.25
