"""Forget gates of every kind: exact sums, inner encodings and fast paths."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import (
    B,
    H,
    K,
    call,
    compiled,
    content,
    mixed,
    qkv,
    scores_of,
    turned,
    visible,
)
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import blockwise
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.schemes import fox

pytestmark = pytest.mark.sampled

KEY = jax.random.key(0)
KINDS = [{}, {"gate": "bias_only"}, {"gate": "fixed"}]
bias_of = jax.jit(fox.bias)


def build(dims=DIMS, **options):
    return posenc_jax.build("fox", dims, key=KEY, **options)


def features_of(encoding, length):
    return call(encoding, "read", content(B, length, DIMS.width, seed=1))


def test_gate_sums_are_exact_over_16000_tokens():
    """Over 16,000 gates near 1/2 a plain float32 sum would be off by 1e-3."""
    length, heads = 16_000, 1
    dims = Dims(heads, 4, 1, length)
    encoding = build(dims).replace(kernel=jnp.ones((1, 1)))
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


def test_fixed_gates_decay_to_1_over_e_after_their_time():
    encoding = build(gate="fixed")
    times = np.exp(np.linspace(0, np.log(L), H))
    logit = -np.log(np.expm1(1 / times))  # gate logit
    slope = np.log1p(np.exp(-logit))  # -log sigmoid
    np.testing.assert_allclose(slope, 1 / times)
    expected = -slope[:, None] * np.arange(40)
    np.testing.assert_allclose(encoding.curve(jnp.arange(40)), expected, rtol=1e-6)
    np.testing.assert_allclose(encoding.slope(), 1 / times, rtol=1e-6)
    assert not any(jax.tree.leaves(posenc_jax.trained_mask(encoding)))


def test_bias_only_gates_equal_constant_gates():
    encoding = build(gate="bias_only").replace(shift=jnp.array([0.0, 1.0, -3.0, 5.0]))
    bias = call(encoding, "bias", np.arange(40), np.arange(40))
    expected = bias_of(np.repeat(np.asarray(encoding.shift)[:, None], 40, axis=1))
    seen = np.tri(40, dtype=bool)
    np.testing.assert_allclose(np.where(seen, bias, 0), np.where(seen, expected, 0), 1e-6)


@pytest.mark.parametrize("start", [None, 0.0, 5.0])
def test_gates_start_at_bias_init(start):
    for gate in ("full", "bias_only"):
        encoding = build(gate=gate, bias_init=start)
        np.testing.assert_array_equal(encoding.shift, np.full(H, start or 0.0, np.float32))
    layers = build(Dims(H, K, DIMS.width, L, layers=3), gate="bias_only", bias_init=start)
    assert layers.layers == 3 and layers.shift.shape == (3, H)
    wrapped = posenc_jax.build("randomized", Dims(H, K, DIMS.width, L, layers=2), KEY, inner="fox")
    assert wrapped.layers == 2 and wrapped.inner.layers is None


@pytest.mark.parametrize("length", [70, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_gates_around_rope_rotate_and_decay(options, length):
    """Attention with grouped heads, unrolled and in a loop, follows the explicit scores."""
    encoding, (q, k, v) = build(inner="rope", base=500.0, **options), qkv(length, groups=2)
    features = features_of(encoding, length)
    row = Tokens(position=jnp.arange(length), features=features)
    bias = np.asarray(encoding.bias(*([row] * 2 if features else [row.position] * 2)))
    angle = np.arange(length)[:, None, None] * np.float64(encoding.inner.inv_freq)
    scores = scores_of(turned(q, angle), turned(k, angle)) + bias
    expected = mixed(scores, visible(length, length), v)
    out = compiled(q, k, v, encoding, features=features)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("inner", ["nope", "rope"])
@pytest.mark.parametrize(
    ("options", "kind"), [(KINDS[0], "Sums"), (KINDS[1], "Curve"), (KINDS[2], "Curve")]
)
def test_gates_use_the_fast_paths(options, kind, inner):
    encoding = build(inner=inner, **options)
    row = Tokens(position=jnp.arange(8), contiguous=True, features=features_of(encoding, 8))
    module = import_module(blockwise.__module__)
    assert type(module._bias(encoding, H, 8, row, row)).__name__ == kind
