"""Forget gates of every kind: golden numbers, inner encodings and fast paths."""

import json
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
from running import ROOT
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.schemes import fox

pytestmark = pytest.mark.sampled

KEY = jax.random.key(0)
GOLDEN = json.loads((ROOT / "tests" / "golden" / "content.json").read_text())["fox"]
KINDS = [{}, {"gate": "bias_only"}, {"gate": "fixed"}]
bias_of = jax.jit(fox.bias)


def build(dims=DIMS, **options):
    return posenc_jax.build("fox", dims, key=KEY, **options)


def features_of(encoding, length):
    return call(encoding, "read", content(B, length, DIMS.width, seed=1))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(len(case["log_f"])))
def test_gates_match_golden_values(case):
    bias = np.asarray(bias_of(np.float32(case["gate_logits"])))
    seen = np.tri(len(bias), dtype=bool)
    np.testing.assert_allclose(np.where(seen, bias, 0), case["bias"], atol=3e-6)
    weights = np.where(seen, np.exp(np.array(case["scores"]) + bias), 0)
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, case["weights"], atol=2e-6)


@pytest.mark.parametrize(("shortest", "longest"), [(None, None), (2.0, 64.0)])
def test_fixed_gates_decay_to_1_over_e_after_their_time(shortest, longest):
    encoding = build(gate="fixed", shortest=shortest, longest=longest)
    times = np.exp(np.linspace(np.log(shortest or 1), np.log(longest or L), H))
    logit = -np.log(np.expm1(1 / times))  # gate logit
    slope = np.log1p(np.exp(-logit))  # -log sigmoid
    np.testing.assert_allclose(slope, 1 / times)
    expected = -slope[:, None] * np.arange(40)
    np.testing.assert_allclose(encoding.curve(jnp.arange(40)), expected, rtol=1e-6)
    np.testing.assert_allclose(encoding.straight(), 1 / times, rtol=1e-6)
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


@pytest.mark.parametrize("inner", ["nope", "rope"])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_open_gates_equal_the_inner_encoding(options, inner):
    encoding = build(inner=inner, **options)
    if "gate" not in options:
        encoding = encoding.replace(kernel=jnp.zeros_like(encoding.kernel))
    if options.get("gate") == "fixed":
        encoding = encoding.replace(time=jnp.full(H, jnp.inf))
    else:
        encoding = encoding.replace(shift=jnp.full(H, 100.0))
    q, k, v = qkv(70, groups=2)
    out = compiled(q, k, v, encoding, features=features_of(encoding, 70))
    expected = compiled(q, k, v, posenc_jax.build(inner, DIMS))
    np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_gates_around_rope_rotate_and_decay(options):
    """Attention with grouped heads, unrolled and in a loop, follows the explicit scores."""
    encoding = build(inner="rope", base=500.0, **options)
    rope = posenc_jax.build("rope", DIMS, base=500.0)
    for length in (70, 600):
        q, k, v = qkv(length, groups=2)
        features = features_of(encoding, length)
        row = Tokens(position=jnp.arange(length), features=features)
        bias = np.asarray(encoding.bias(*([row] * 2 if features else [row.position] * 2)))
        angle = np.arange(length)[:, None, None] * np.float64(rope.inv_freq)
        scores = scores_of(turned(q, angle), turned(k, angle)) + bias
        expected = mixed(scores, visible(length, length), v)
        run = jax.jit(lambda q, k, v, f: attend(q, k, v, encoding, features=f))  # noqa: B023
        np.testing.assert_allclose(run(q, k, v, features), expected, atol=1e-5)


@pytest.mark.parametrize("inner", ["nope", "rope"])
@pytest.mark.parametrize(
    ("options", "kind"), [(KINDS[0], "Sums"), (KINDS[1], "Curve"), (KINDS[2], "Curve")]
)
def test_gates_use_the_fast_paths(options, kind, inner):
    encoding = build(inner=inner, **options)
    row = Tokens(position=jnp.arange(8), contiguous=True, features=features_of(encoding, 8))
    blocks = import_module("posenc_jax.attention.blockwise")
    assert type(blocks._bias(encoding, H, 8, row, row)).__name__ == kind


def test_extensions_reach_the_encoding_inside_gates():
    encoding = build(Dims(H, K, DIMS.width, L, layers=2), inner="rope")
    plain = posenc_jax.build("rope", DIMS)
    slowed = posenc_jax.extend("yarn", encoding, 4.0).layer(1)
    expected = posenc_jax.extend("yarn", plain, 4.0)
    np.testing.assert_array_equal(slowed.inner.inv_freq, expected.inv_freq)
    remapped = posenc_jax.extend("self_extend", encoding, 4.0)
    assert remapped.layers == 2 and remapped.inner.group.shape == (2,)
    layer = remapped.layer(1).inner
    assert layer.group.shape == () and layer.inner.inv_freq.shape == plain.inv_freq.shape
    assert "yarn" not in posenc_jax.extensions.fitting(build())
