"""Encodings around others: DAPE, scalable softmax and attention sinks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import KEY, B, H, K, build, close, compiled, content, qkv
from sizes import DIMS, L, config_of

import posenc_jax
from configs import ssmax as recipe
from posenc_jax import schemes
from posenc_jax.attention import attend, plain
from posenc_jax.attention.plain import query_scale
from posenc_jax.attention.regions import by_regions
from posenc_jax.config import building, flags, load
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.layers import Wrapper, overrides
from posenc_jax.positions import tokens_of_row
from posenc_jax.runs import parameters
from posenc_jax.runtime.errors import ConfigError

pytestmark = pytest.mark.sampled

S = np.linspace(0.2, 0.8, H)
T = 40


def layered(layers):
    return Dims(H, K, DIMS.width, L, layers=layers)


# DAPE


@pytest.mark.parametrize("inner", ["rope", pytest.param("relative", marks=pytest.mark.slow)])
def test_an_mlp_of_zeros_leaves_the_inner_encoding(inner):
    encoding, (q, k, v) = build("dape", inner=inner), qkv(70, groups=2)
    zeros = encoding.replace(w2=jnp.zeros_like(encoding.w2))
    features = encoding.read(jax.random.normal(KEY, (B, 70, DIMS.width)))
    run = jax.jit(lambda encoding: attend(q, k, v, encoding, features=features))
    np.testing.assert_allclose(run(zeros), run(encoding.inner), atol=2e-6)
    assert jnp.abs(run(encoding) - run(encoding.inner)).max() > 1e-3


@pytest.mark.parametrize(("inner", "inputs"), [("rope", H), ("fox", 2 * H)])
def test_each_layer_draws_its_own_mlp_and_may_share_the_inner_encoding(inner, inputs):
    encoding = build("dape", layered(2), inner=inner)
    assert (encoding.layers is None) == (inner == "rope")
    assert jnp.abs(encoding.w1).max() <= inputs**-0.5 and jnp.any(encoding.w1[0] != encoding.w1[1])


@pytest.mark.parametrize("inner", ["alibi", "fire"])
def test_positions_may_be_those_of_all_rows(inner):
    encoding, (q, k, v), places = build("dape", inner=inner), qkv(L), jnp.arange(L)
    shared = attend(q, k, v, encoding, q_positions=places, k_positions=places)
    own = attend(q, k, v, encoding, q_positions=places[None], k_positions=places[None])
    np.testing.assert_allclose(own, shared, atol=2e-6)


# Scalable softmax


def ssmax(dims=DIMS, **options):
    return build("ssmax", dims, **options)


def scaled(encoding, n):
    """Return s ln n of every head in float64."""
    return np.float64(encoding.scale)[:, None] * np.log(n)


def test_the_scale_starts_at_one_at_l_or_everywhere_with_a_bias():
    start = ssmax().query_scale(jnp.arange(T))
    assert start.shape == (1, H, T)
    np.testing.assert_allclose(start[0, 0], np.log(np.arange(T) + 1) / math.log(L), rtol=1e-6)
    np.testing.assert_array_equal(ssmax(bias=True).query_scale(jnp.arange(T)), jnp.ones_like(start))


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
    encoding = ssmax().replace(scale=jnp.asarray(S, jnp.float32), window=window)
    around = Wrapper(dims=DIMS, inner=encoding.replace(window=None), window=window)
    for each in (encoding, around):
        close(counted(each, window=argument)[0], scaled(encoding, n), rtol=1e-5)


def test_n_counts_keys_within_a_chunk():
    encoding = ssmax(inner="hybrid:pattern=local:chunked=True:window=6").layer(0)
    n = np.arange(T) % 6 + 1
    close(counted(encoding)[0], scaled(encoding, n), rtol=1e-5)
    close(counted(encoding, window=4)[0], scaled(encoding, np.minimum(n, 4)), rtol=1e-5)


@pytest.mark.parametrize("name", ["lm_infinite:first=3", "streaming:first=3:window=16"])
def test_n_counts_first_tokens_and_the_window(name):
    encoding = posenc_jax.extend(name, ssmax(), 1.0)
    n = np.minimum(np.arange(T) + 1, L + 3)
    close(counted(encoding)[0], scaled(ssmax(), n), rtol=1e-5)


@pytest.mark.parametrize("inner", ["rope", "randomized"])
def test_n_counts_document_tokens_at_any_positions(inner):
    cuts = np.array([13, 30])
    segments = (np.arange(T)[None] >= cuts[:, None]).astype(int)
    places = np.where(segments, np.arange(T)[None] - cuts[:, None], np.arange(T)[None])
    for wrapped in (ssmax(inner=inner), build("randomized", inner="ssmax")):
        inside = wrapped.inner if wrapped.name == "randomized" else wrapped
        actual = counted(wrapped, segments=jnp.asarray(segments), key=KEY, batch=2)
        for row in range(2):
            close(actual[row], scaled(inside, places[row] + 1), rtol=1e-5)
        close(counted(wrapped, key=KEY)[0], scaled(inside, np.arange(T) + 1), rtol=1e-5)


def test_each_layer_has_its_own_scale_and_shares_the_inner_encoding():
    encoding = ssmax(layered(4), inner="t5", bias=True)
    trained, _ = posenc_jax.partition(encoding)
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(trained))
    assert shapes == [(4, H), (4, H), (32, H)]
    gates = ssmax(layered(4), inner="fox")
    assert gates.layers == 4 and gates.inner.layers is None
    assert gates.layer(2).inner.kernel.shape == (DIMS.width, H)


def test_inner_encodings_per_layer_have_one_scale_each():
    build_per_layer = posenc_jax.schemes.build_per_layer
    t5 = build_per_layer("ssmax", layered(4), KEY, inner="t5")
    assert (t5.layers, t5.period, t5.scale.ndim, t5.inner.table.ndim) == (4, 1, 2, 3)
    hybrid = build_per_layer("ssmax", layered(4), KEY, inner="hybrid")
    assert (hybrid.layers, hybrid.depth, hybrid.scale.ndim) == (None, 4, 2)
    kinds = [hybrid.kind_of_layer(index) for index in range(4)]
    assert kinds == ["local", "local", "local", "global"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trained", "llama4"])
def test_only_the_global_layers_of_a_hybrid_may_be_scaled(kind, make_model, make_tokens, forward):
    encoding = ssmax(layered(4), inner="hybrid", layers="global", kind=kind)
    places = jnp.arange(4 * L)
    has = [encoding.layer(i).query_scale(places) is not None for i in range(4)]
    assert has == [False, False, False, True]
    assert [encoding.layer(i).narrowed() for i in range(4)] == [4, 4, 4, None]
    extended = posenc_jax.extend("window:size=3", encoding, 1.0)
    assert [extended.layer(i).narrowed() for i in range(4)] == [3, 3, 3, 3]
    logits = forward(make_model(layers=4), make_tokens(2 * L), encoding)
    plain = forward(make_model(layers=4), make_tokens(2 * L), build("hybrid", layered(4)))
    assert jnp.any(jnp.abs(logits - plain) > 1e-4)


def test_inner_options_follow_its_name_or_are_keywords():
    behind, beside = ssmax(inner="fire:hidden=5"), ssmax(inner="fire", hidden=5)
    for encoding in (behind, beside, build("randomized", inner="fire:hidden=5")):
        assert encoding.inner.kernel.shape == (5, H)
    assert build("randomized", inner="rope", base=77.0).inner.base == 77
    hybrid = ssmax(inner="hybrid:pattern=local/global:window=3").inner
    assert hybrid.pattern == ("local", "global") and hybrid.layer(0).window == 3
    inside = "--config.encoding.inner=rope:keep=turned"
    _, config, _ = flags.parse(["train.py", "--config=configs/ssmax.py", inside])
    assert building.plain(load(config), KEY).inner.keep == "turned"
    config = recipe.get_config()
    config.encoding.update(inner="fire", hidden=5)
    assert building.plain(load(config), KEY).inner.kernel.shape == (5, 4)


# Sinks


def with_sink(name, dims=DIMS, sink=True, **options):
    return build(name, dims, sink=sink, **options)


@pytest.mark.parametrize("name", schemes.names())
def test_a_sink_at_minus_infinity_has_no_effect(name):
    if overrides(build(name), "attend"):
        with pytest.raises(ValueError, match=f"fit encoding '{name}', which has its own attention"):
            with_sink(name)
        return
    encoding = with_sink(name).layer(0)
    encoding = encoding.replace(logit=jnp.full(H, -jnp.inf))
    x, (q, k, v) = jax.random.normal(KEY, (2, 70, DIMS.width)), qkv(70, groups=2)
    length = min(70, encoding.reach or 70)
    features, row = encoding.read(x[:, :length]), tokens_of_row(encoding, 2, length)
    q, k, v = (a[:, :length] for a in (q, k, v))

    def run(encoding):
        def loss(q, k, v):
            out = attend(q, k, v, encoding, row, features=features)
            return jnp.sum(jnp.sin(out)), out

        return jax.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)

    close(*jax.jit(lambda: (run(encoding), run(encoding.inner)))(), atol=1e-6)


@pytest.mark.parametrize("extension", ["none", "self_extend:group=2", "streaming:window=9"])
@pytest.mark.parametrize("how", ["plain", "blockwise"])
def test_a_sink_is_one_more_column_of_all_regions(extension, how):
    """Outputs and gradients match plain attention with one more softmax column."""
    logit = jnp.array([0.5, -1.0, 3.0, 0.0])
    q, k, v = qkv(40, groups=2)
    extended, alone = (
        posenc_jax.extend(extension, build("rope", sink=sink), 1.0) for sink in (True, False)
    )

    def ours(logit, q):
        out = attend(q, k, v, extended.replace(logit=logit), implementation=how)
        return jnp.sum(jnp.sin(out)), out

    def theirs(logit, q):
        row = Tokens(position=jnp.arange(40), contiguous=True)
        heads_major = (jnp.swapaxes(jnp.asarray(x), 1, 2) for x in (q, k, v))
        phase = alone.phase(row.position)
        out, logsum = by_regions(plain, *heads_major, alone, row, row, phase=phase)
        column = jnp.broadcast_to(logit[None, :, None], logsum.shape)
        share = jax.nn.softmax(jnp.stack([logsum, column]), axis=0)[0]
        out = out * share[..., None]
        return jnp.sum(jnp.sin(out)), jnp.swapaxes(out, 1, 2)

    actual, expected = (
        jax.jit(jax.value_and_grad(f, (0, 1), has_aux=True))(logit, q) for f in (ours, theirs)
    )
    close(actual[0][1], expected[0][1], atol=1e-6)
    close(actual, expected, atol=2e-5, rtol=1e-4)
    assert np.all(np.abs(actual[1][0]) > 1e-3)


@pytest.mark.parametrize("name", ["nope", "fox", "relative", "hybrid"])
@pytest.mark.parametrize("how", ["plain", "blockwise"])
def test_a_sink_of_tokens_is_a_sink_of_each_query(name, how):
    """With one query it is that query's logit; untrained, it equals the other sink at 0."""
    (q, k, v), x = qkv(40, groups=2), content(2, 40, DIMS.width)
    of_tokens, of_heads = (with_sink(name, sink=sink).layer(0) for sink in ("token", True))
    kernel = jax.random.normal(KEY, of_tokens.kernel.shape)

    def out(encoding, rows=slice(None)):
        features = encoding.read(x)
        own = jax.tree.map(lambda leaf: leaf[:, rows], features)
        options = {} if features is None else {"features": (own, features)}
        return compiled(q[:, rows], k, v, encoding, implementation=how, **options)

    np.testing.assert_allclose(out(of_tokens), out(of_heads), atol=1e-6)
    logits = np.float64(x) @ np.float64(kernel)  # [B, T, H]
    ours = out(of_tokens.replace(kernel=kernel))
    for row in range(2):
        theirs = out(of_heads.replace(logit=jnp.float32(logits[row, -1])), slice(-1, None))
        np.testing.assert_allclose(ours[row, -1:], theirs[row], atol=2e-6)


def test_layers_share_all_but_their_sinks_and_stacks_keep_them():
    encoding = with_sink("t5", layered(2))
    assert not np.any(encoding.logit) and encoding.name == "t5"
    assert encoding.inner.table.shape == (32, H)
    stacked = posenc_jax.stack([with_sink("rope")] * 2)
    assert stacked.logit.shape == (2, H) and stacked.layer(1).logit.shape == (H,)


def test_a_configuration_enables_sinks():
    config = config_of("t5", **{"encoding.sink": True, "encoding.per_layer": True})
    t5 = parameters.make(config).encoding
    assert t5.logit.shape == (2, 2) and t5.inner.table.shape[0] == 2
    assert t5.layer(1).inner.table.shape == t5.inner.table.shape[1:]
    config = config_of("rope", **{"encoding.sink": True, "encoding_rate": 2.0})
    arrays = parameters.make(config).params()["encoding"]
    assert {name: array.shape for name, array in arrays.items()} == {"logit": (2, 2)}
    parameters.check(config)
    config = config_of("rope", **{"encoding.sink": "token"})
    assert parameters.make(config).params()["encoding"]["kernel"].shape == (2, 16, 2)
    with pytest.raises(ConfigError, match="'rope' has no trained arrays"):
        config_of("rope", **{"encoding.per_layer": True, "encoding.sink": True})
