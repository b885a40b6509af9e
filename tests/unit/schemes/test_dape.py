"""DAPE: golden logits, heads that mix, encodings inside it, and refusals."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import B, H, K, mixed, qkv, scores_of, turned, visible
from running import ROOT
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims
from posenc_jax.schemes import dape

pytestmark = pytest.mark.sampled

GOLDEN = json.loads((ROOT / "tests" / "golden" / "content.json").read_text())["dape"]
KEY = jax.random.key(0)
WEIGHTS = ("scores", "bias", "w1", "b1", "w2", "b2")


def build(dims=DIMS, **options):
    return posenc_jax.build("dape", dims, KEY, **options)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(len(case["b1"])))
def test_logits_match_golden_values(case):
    actual = dape.mix(*(jnp.array(case[name]) for name in WEIGHTS))
    np.testing.assert_allclose(actual, case["out"], rtol=2e-6, atol=5e-6)


def test_one_head_by_hand():
    """Hidden units of 2 s - b - 1 and -s, of which the leaky ReLU keeps a hundredth below 0."""
    s, b = jnp.array([[[1.0, -2.0]]]), jnp.array([[[3.0, 0.5]]])
    w1, b1 = jnp.array([[2.0, -1.0], [-1.0, 0.0]]), jnp.array([-1.0, 0.0])
    w2, b2 = jnp.array([[1.0], [10.0]]), jnp.array([0.25])
    expected = [4 + 0.25 - 0.02 - 0.1, -1.5 + 0.25 - 0.055 + 20]
    np.testing.assert_allclose(dape.mix(s, b, w1, b1, w2, b2)[0, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "inner",
    ["rope", *(pytest.param(n, marks=pytest.mark.slow) for n in ("alibi", "fire", "relative"))],
)
def test_an_mlp_of_zeros_leaves_the_inner_encoding(inner):
    encoding, (q, k, v) = build(inner=inner), qkv(70, groups=2)
    zeros = encoding.replace(w2=jnp.zeros_like(encoding.w2))
    features = encoding.read(jax.random.normal(KEY, (B, 70, DIMS.width)))
    run = jax.jit(lambda encoding: attend(q, k, v, encoding, features=features))
    np.testing.assert_allclose(run(zeros), run(encoding.inner), atol=2e-6)
    assert jnp.abs(run(encoding) - run(encoding.inner)).max() > 1e-3


@pytest.mark.parametrize("inner", ["kerple_log", "rope"])
@pytest.mark.parametrize(
    ("length", "how"), [(L, "plain"), pytest.param(200, "blockwise", marks=pytest.mark.slow)]
)
def test_attention_mixes_scores_and_biases_of_heads(inner, length, how):
    encoding, (q, k, v) = build(inner=inner, units=5), qkv(length, groups=2)
    out = jax.jit(lambda: attend(q, k, v, encoding, implementation=how))()
    if inner == "rope":
        angle = np.arange(length)[:, None, None] * np.float64(encoding.inner.inv_freq)
        scores = scores_of(turned(q, angle), turned(k, angle))
    else:
        scores = scores_of(q, k)
    scores = jnp.asarray(scores, jnp.float32)
    bias = encoding.bias(jnp.arange(length), jnp.arange(length))
    w1, b2 = encoding.w1, jnp.zeros(H)
    if bias is None:
        bias, w1 = jnp.zeros((H, length, length)), jnp.concatenate([w1, jnp.zeros_like(w1)])
    logits = jnp.stack([dape.mix(s, bias, w1, encoding.b1, encoding.w2, b2) for s in scores])
    expected = mixed(np.float64(logits), visible(length, length), v)
    np.testing.assert_allclose(out, expected, atol=5e-6)


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["t5", "rope"])
def test_gradients_of_blocks_are_those_of_whole_rows(inner):
    q, k, v = qkv(150, groups=2)

    def gradients(how):
        def loss(encoding, q):
            return jnp.sum(jnp.sin(3 * attend(q, k, v, encoding, window=90, implementation=how)))

        return jax.tree.leaves(jax.jit(jax.grad(loss, (0, 1)))(build(inner=inner), q))

    for ours, theirs in zip(gradients("blockwise"), gradients("plain"), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * max(1, jnp.abs(theirs).max()))


@pytest.mark.parametrize(("inner", "inputs"), [("rope", H), ("fox", 2 * H)])
def test_each_layer_draws_its_own_mlp_and_may_share_the_inner_encoding(inner, inputs):
    encoding = build(Dims(H, K, DIMS.width, L, layers=2), inner=inner)
    assert (encoding.layers is None) == (inner == "rope")
    assert jnp.abs(encoding.w1).max() <= inputs**-0.5 and jnp.any(encoding.w1[0] != encoding.w1[1])


def test_extensions_reach_the_encoding_inside():
    slowed = posenc_jax.extend("yarn", build(inner="rope"), 4.0)
    expected = posenc_jax.extend("yarn", posenc_jax.build("rope", DIMS), 4.0)
    np.testing.assert_array_equal(slowed.inner.inv_freq, expected.inv_freq)


@pytest.mark.parametrize("inner", ["alibi", "fire"])
def test_positions_may_be_those_of_all_rows(inner):
    encoding, (q, k, v), places = build(inner=inner), qkv(L), jnp.arange(L)
    shared = attend(q, k, v, encoding, q_positions=places, k_positions=places)
    own = attend(q, k, v, encoding, q_positions=places[None], k_positions=places[None])
    np.testing.assert_allclose(own, shared, atol=2e-6)
