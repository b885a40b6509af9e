"""Scalable softmax: formulas, counted keys, layers and options."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS, L

import posenc_jax
from configs import ssmax as recipe
from posenc_jax.attention import attend
from posenc_jax.attention.plain import query_scale
from posenc_jax.config import building, flags, load
from posenc_jax.encoding import Dims
from posenc_jax.layers import Wrapper
from posenc_jax.positions import tokens_of_row
from posenc_jax.schemes.ssmax import temperature

pytestmark = pytest.mark.sampled

LAYERS = Dims(DIMS.heads, DIMS.head_dim, DIMS.width, L, layers=4)
KEY = jax.random.key(0)
KINDS = ("llama4", "ministral3", "inkling")
S = np.linspace(0.2, 0.8, DIMS.heads)
T = 40


def build(dims=DIMS, **options):
    return posenc_jax.build("ssmax", dims, KEY, **options)


def scaled(encoding, n):
    """Return s ln n of every head in float64."""
    return np.float64(encoding.scale)[:, None] * np.log(n)


# The formulas


def test_the_scale_starts_at_one_at_l_or_everywhere_with_a_bias():
    start = build().query_scale(jnp.arange(T))
    assert start.shape == (1, DIMS.heads, T)
    np.testing.assert_allclose(start[0, 0], np.log(np.arange(T) + 1) / math.log(L), rtol=1e-6)
    np.testing.assert_array_equal(build(bias=True).query_scale(jnp.arange(T)), jnp.ones_like(start))


# The count n


def counted(encoding, *, segments=None, key=None, window=None, batch=1):
    """Return the query scale used by attention, [B or 1, H, T]."""
    row = tokens_of_row(encoding, batch, T, key, segments)
    return query_scale(encoding.windowed(window), row, row, T, T)[..., 0]


@pytest.mark.parametrize(
    ("window", "argument", "n"),
    [
        (None, None, np.arange(T) + 1),
        (7, None, np.minimum(np.arange(T) + 1, 7)),
        (7, 3, np.minimum(np.arange(T) + 1, 3)),
        (None, 9, np.minimum(np.arange(T) + 1, 9)),
    ],
)
def test_n_counts_visible_keys(window, argument, n):
    encoding = build().replace(scale=jnp.asarray(S, jnp.float32), window=window)
    expected = scaled(encoding, n)
    np.testing.assert_allclose(counted(encoding, window=argument)[0], expected, rtol=1e-5)
    around = Wrapper(dims=DIMS, inner=encoding.replace(window=None), window=window)
    np.testing.assert_allclose(counted(around, window=argument)[0], expected, rtol=1e-5)


def test_n_counts_keys_within_a_chunk():
    encoding = build(inner="hybrid:pattern=local:chunked=True:window=6").layer(0)
    n = np.arange(T) % 6 + 1
    np.testing.assert_allclose(counted(encoding)[0], scaled(encoding, n), rtol=1e-5)
    n = np.minimum(n, 4)
    np.testing.assert_allclose(counted(encoding, window=4)[0], scaled(encoding, n), rtol=1e-5)


@pytest.mark.parametrize("name", ["lm_infinite:first=3", "streaming:first=3:window=16"])
def test_n_counts_first_tokens_and_the_window(name):
    encoding = posenc_jax.extend(name, build(), 1.0)
    n = np.minimum(np.arange(T) + 1, L + 3)
    np.testing.assert_allclose(counted(encoding)[0], scaled(build(), n), rtol=1e-5)


@pytest.mark.parametrize("inner", ["rope", "randomized"])
def test_n_counts_document_tokens_at_any_positions(inner):
    cuts = np.array([13, 30])
    segments = (np.arange(T)[None] >= cuts[:, None]).astype(int)
    places = np.where(segments, np.arange(T)[None] - cuts[:, None], np.arange(T)[None])
    for wrapped in (build(inner=inner), posenc_jax.build("randomized", DIMS, KEY, inner="ssmax")):
        ssmax = wrapped.inner if wrapped.name == "randomized" else wrapped
        actual = counted(wrapped, segments=jnp.asarray(segments), key=KEY, batch=2)
        for row in range(2):
            np.testing.assert_allclose(actual[row], scaled(ssmax, places[row] + 1), rtol=1e-5)
        actual = counted(wrapped, key=KEY)
        np.testing.assert_allclose(actual[0], scaled(ssmax, np.arange(T) + 1), rtol=1e-5)


@pytest.mark.parametrize("how", ["plain", "blockwise"])
def test_attention_multiplies_queries_by_the_scale(how):
    encoding = build(inner="alibi").replace(scale=jnp.asarray(S, jnp.float32))
    n = np.log(np.arange(T) + 1)[None, :, None, None] * S[None, None, :, None]
    alibi = posenc_jax.build("alibi", DIMS)
    expected = attended(alibi, jnp.asarray(n, jnp.float32), how)
    np.testing.assert_allclose(attended(encoding, 1.0, how), expected, atol=2e-6)


@pytest.mark.parametrize("how", ["plain", "blockwise"])
def test_inkling_also_scales_the_bias(how):
    """Each query matches ALiBi with slopes steeper by its factor."""
    out = attended(build(inner="alibi", kind="inkling", a=0.5), 1.0, how)
    tau = temperature("inkling", jnp.arange(T), L, 0.5)
    alibi = posenc_jax.build("alibi", DIMS)
    for place in (0, L, T - 1):
        steeper = alibi.replace(slopes=alibi.slopes * tau[place])
        single = attended(steeper, tau[None, :, None, None], how)
        np.testing.assert_allclose(out[:, place], single[:, place], atol=2e-6)
    assert tau[T - 1] > 1.1


@functools.partial(jax.jit, static_argnums=2)
def attended(encoding, factor, how):
    keys = jax.random.split(KEY, 3)
    q, k, v = (jax.random.normal(key, (1, T, DIMS.heads, DIMS.head_dim)) for key in keys)
    return attend(factor * q, k, v, encoding, implementation=how)


# Layers


def test_each_layer_has_its_own_scale_and_shares_the_inner_encoding():
    encoding = build(LAYERS, inner="t5", bias=True)
    trained, _ = posenc_jax.partition(encoding)
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(trained))
    assert shapes == [(4, DIMS.heads), (4, DIMS.heads), (32, DIMS.heads)]
    gates = build(LAYERS, inner="fox")
    assert gates.layers == 4 and gates.inner.layers is None
    assert gates.layer(2).inner.kernel.shape == (DIMS.width, DIMS.heads)


def test_inner_encodings_per_layer_have_one_scale_each():
    build_per_layer = posenc_jax.schemes.build_per_layer
    t5 = build_per_layer("ssmax", LAYERS, KEY, inner="t5")
    assert (t5.layers, t5.period, t5.scale.ndim, t5.inner.table.ndim) == (4, 1, 2, 3)
    hybrid = build_per_layer("ssmax", LAYERS, KEY, inner="hybrid")
    assert (hybrid.layers, hybrid.depth, hybrid.scale.ndim) == (None, 4, 2)
    kinds = [hybrid.kind_of_layer(index) for index in range(4)]
    assert kinds == ["local", "local", "local", "global"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trained", "llama4"])
def test_only_the_global_layers_of_a_hybrid_may_be_scaled(kind, make_model, make_tokens, forward):
    encoding = build(LAYERS, inner="hybrid", layers="global", kind=kind)
    places = jnp.arange(4 * L)
    has = [encoding.layer(i).query_scale(places) is not None for i in range(4)]
    assert has == [False, False, False, True]
    assert [encoding.layer(i).narrowed() for i in range(4)] == [4, 4, 4, None]
    extended = posenc_jax.extend("window:size=3", encoding, 1.0)
    assert [extended.layer(i).narrowed() for i in range(4)] == [3, 3, 3, 3]
    logits = forward(make_model(layers=4), make_tokens(2 * L), encoding)
    plain = forward(make_model(layers=4), make_tokens(2 * L), posenc_jax.build("hybrid", LAYERS))
    assert jnp.any(jnp.abs(logits - plain) > 1e-4)


# Options


def test_inner_options_follow_its_name_or_are_keywords():
    behind, beside = build(inner="fire:hidden=5"), build(inner="fire", hidden=5)
    for encoding in (
        behind,
        beside,
        posenc_jax.build("randomized", DIMS, KEY, inner="fire:hidden=5"),
    ):
        assert encoding.inner.kernel.shape == (5, DIMS.heads)
    hybrid = build(inner="hybrid:pattern=local/global:window=3").inner
    assert hybrid.pattern == ("local", "global") and hybrid.layer(0).window == 3
    _, config, _ = flags.parse(
        ["train.py", "--config=configs/ssmax.py", "--config.encoding.inner=rope:keep=turned"]
    )
    assert building.plain(load(config), KEY).inner.keep == "turned"
    config = recipe.get_config()
    config.encoding.update(inner="fire", hidden=5)
    assert building.plain(load(config), KEY).inner.kernel.shape == (5, 4)
