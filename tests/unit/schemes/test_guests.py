"""Forget gates and layers that differ."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sizes
from sizes import DIMS, VOCAB, L

import models
import posenc_jax
from posenc_jax.attention import blockwise
from posenc_jax.data.batches import Batch
from posenc_jax.encoding import Tokens
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.schemes import fox
from posenc_jax.training import train_step
from posenc_jax.training.optimizer import make

pytestmark = pytest.mark.sampled

KEY = jax.random.key(0)
GATES, LOG_F = [2, -1, 0, 1, 3, -2], [-0.126928, -1.313262, -0.693147, -0.313262, -0.048587]


def build(name, dims=DIMS, **options):
    return posenc_jax.build(name, dims, key=KEY, **options)


# Forget gates


def test_forget_gates_match_golden_values():
    gates = np.array(GATES, np.float32)
    bias, steep = np.asarray(jax.jit(fox.bias)(np.stack([gates, -30 * gates])))
    last = [-4.495186, -3.181924, -2.488777, -2.175515, -2.126928, 0]
    np.testing.assert_allclose(bias[5], last, atol=2e-6)
    weights = np.exp(bias[5]) / np.exp(bias[5]).sum()
    expected = [0.008157, 0.030331, 0.060662, 0.082978, 0.087109, 0.730763]
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    # The gate of the query, not of the key.
    np.testing.assert_allclose(bias[4, 3], LOG_F[4], atol=1e-6)
    assert np.all(np.isfinite(steep))


def test_gate_sums_are_exact_over_16000_tokens():
    """Over 16,000 gates near 1/2 a plain float32 sum would be off by 1e-3."""
    length, heads = 16_000, 1
    dims = posenc_jax.Dims(heads, 4, 1, length)
    encoding = build("fox", dims).replace(kernel=jnp.ones((1, 1)))
    rng = np.random.default_rng(0)
    gates = np.float32(rng.normal(size=length))
    q, k, v = (np.float32(rng.normal(size=(length, 4))) for _ in range(3))
    features = jax.jit(encoding.read)(gates[None, :, None])
    row = Tokens(position=jnp.arange(length), features=features)
    last = jax.tree.map(lambda x: x[..., -50:] if x.ndim == 1 else x[:, -50:], row)

    def loss(x, features):
        sides = last.replace(features=jax.tree.map(lambda f: f[:, -50:], features))
        heads_major = (jnp.asarray(x)[None, None] for x in (q[-50:], k, v))
        out, _ = blockwise(*heads_major, encoding, sides, row.replace(features=features))
        return out

    out = jax.jit(loss)(gates, features)[0, 0]
    steps = -np.log1p(np.exp(-np.float64(gates)))
    total = np.cumsum(steps)
    scores = np.float64(q[-50:]) @ np.float64(k).T / 2 + total[-50:, None] - total[None, :]
    scores = np.where(np.arange(length)[None] <= np.arange(length)[-50:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ np.float64(v)
    np.testing.assert_allclose(out, expected, atol=2e-5)


@pytest.mark.slow
def test_reading_gates_in_parts_equals_reading_at_once():
    encoding, x = build("fox"), jax.random.normal(KEY, (2, 40, DIMS.width))
    whole, first = encoding.read(20 * x), encoding.read(20 * x[:, :25])
    second = encoding.read(20 * x[:, 25:], before=first)
    for name in ("sum", "rest"):
        joined = jnp.concatenate([first[name], second[name]], axis=1)
        np.testing.assert_allclose(joined, whole[name], atol=1e-5)
    exact = lambda f: np.float64(f["sum"]) + np.float64(f["rest"])  # noqa: E731
    np.testing.assert_allclose(exact(second), exact(whole)[:, 25:], rtol=1e-7)


def test_each_layer_draws_its_own_gates():
    dims = posenc_jax.Dims(DIMS.heads, DIMS.head_dim, DIMS.width, L, layers=2)
    encoding, wrapped = build("fox", dims), build("randomized", dims, inner="fox")
    assert jnp.any(encoding.kernel[0] != encoding.kernel[1])
    assert wrapped.layers == encoding.layers == 2 and wrapped.inner.layers is None


# Layers that differ


def test_a_hybrid_of_one_kind_equals_that_encoding(make_model, make_tokens, forward):
    tokens, model = make_tokens(L), make_model()
    hybrid = build("hybrid", pattern="local", window=L)
    expected = forward(model, tokens, build("rope"), window=L)
    np.testing.assert_array_equal(forward(model, tokens, hybrid), expected)
    hybrid = build("hybrid", pattern=["global", "global"])
    expected = forward(model, tokens, build("nope"))
    np.testing.assert_array_equal(forward(model, tokens, hybrid), expected)


@pytest.mark.parametrize(
    ("pattern", "layers"),
    [("local,global", 5), pytest.param("local,local,local,global", 10, marks=pytest.mark.slow)],
)
def test_scanned_periods_equal_unrolled_layers(pattern, layers, make_tokens):
    """The model has two whole periods and a partial scanned."""
    tokens = make_tokens(L, batch=2)
    encoding = build("hybrid", pattern=pattern, window=5)

    def value(scan):
        fields = dict(layers=layers, width=DIMS.width, heads=DIMS.heads, vocab=VOCAB, scan=scan)
        model = models.Transformer(models.Config(**fields), KEY)

        def loss(model):
            return jnp.mean(model(tokens, encoding) ** 2)

        return jax.jit(jax.value_and_grad(loss))(model)

    for scanned, unrolled in zip(
        jax.tree.leaves(value(True)), jax.tree.leaves(value(False)), strict=True
    ):
        np.testing.assert_allclose(scanned, unrolled, atol=2e-6)


def test_hybrid_layers_follow_the_pattern():
    encoding = build("hybrid", pattern="local,local,local,global", window=5)
    layers = [encoding.layer(i) for i in range(6)]
    assert [layer.name for layer in layers] == ["rope", "rope", "rope", "nope", "rope", "rope"]
    assert [layer.window for layer in layers] == [5, 5, 5, None, 5, 5]


@pytest.mark.slow
def test_query_scales_reach_the_layers_of_a_hybrid(make_model, make_tokens, forward):
    hybrid = posenc_jax.extend("logn", build("hybrid"), 1.0)
    assert all(hybrid.layer(i).logn for i in range(4))
    model, tokens = make_model(), make_tokens(4 * L)
    plain = forward(model, tokens, build("hybrid"))
    assert jnp.any(jnp.abs(forward(model, tokens, hybrid) - plain) > 1e-4)


# From a configuration


config_of = functools.partial(sizes.config_of, **{"model.layers": 4, "train_length": 80})


def trained(config, steps=6):
    parts, optimizer = parameters.make(config), make(config)
    mesh = devices.make_mesh(jax.devices()[:1])
    step = train_step.train_step(parts, optimizer, config, mesh)
    state = train_step.fresh_state(parts, optimizer)
    before = jax.tree.map(np.asarray, state["params"])
    tokens = np.random.default_rng(0).integers(0, 31, (4, 81)).astype(np.int32)
    ones, segments = np.ones((4, 80), np.float32), np.zeros((4, 80), np.int32)
    batch = Batch(tokens[:, :-1], tokens[:, 1:], ones, segments, ones.astype(np.int32))
    losses = []
    for _ in range(steps):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    return losses, before, state["params"]


@pytest.mark.parametrize(
    ("name", "layers"),
    [("fox", 2), ("ssmax", 2), pytest.param("hybrid", 4, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_encodings_train_from_their_configuration(name, layers):
    losses, before, after = trained(config_of(name, **{"model.layers": layers}))
    assert losses[-1] < losses[0] - 0.1
    for path, moved in after["encoding"].items():
        assert np.any(moved != before["encoding"][path]), path
        assert len(moved) == layers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fox", "hybrid"])
def test_blockwise_training_matches_plain_training(name):
    ways = ({"model.attention": way} for way in ("plain", "blockwise"))
    plain, blocks = (trained(config_of(name, **way))[0] for way in ways)
    np.testing.assert_allclose(blocks, plain, rtol=1e-4)


@pytest.mark.slow
def test_per_layer_gives_each_layer_its_own_encoding():
    per_layer = parameters.make(config_of("t5", **{"encoding.per_layer": True}))
    table = per_layer.encoding.table
    assert per_layer.encoding.layers == 4 and table.shape[0] == 4
    assert len({float(layer.sum()) for layer in table}) == 4
    shared = parameters.make(config_of("t5"))
    assert shared.encoding.layers is None and shared.encoding.table.shape == table.shape[1:]


@pytest.mark.slow
def test_per_layer_encodings_train():
    fields = {"encoding.per_layer": True, "model.layers": 2}
    losses, _, after = trained(config_of("kerple_log", **fields), steps=2)
    assert after["encoding"]["log_r1"].shape == (2, 2) and np.all(np.isfinite(losses))


@pytest.mark.parametrize(
    ("name", "reason"), [("rope", "has no trained arrays"), ("learned", "which all layers share")]
)
def test_per_layer_without_effect_is_refused(name, reason):
    with pytest.raises(ConfigError, match=f"per_layer = True has no effect: .*{name}.* {reason}"):
        parameters.check(config_of(name, **{"encoding.per_layer": True}))
