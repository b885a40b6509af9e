"""DAPE: heads that mix, and encodings inside it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import B, H, K, mixed, qkv, scores_of, turned, visible
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims
from posenc_jax.schemes import dape

pytestmark = pytest.mark.sampled

KEY = jax.random.key(0)


def build(dims=DIMS, **options):
    return posenc_jax.build("dape", dims, KEY, **options)


@pytest.mark.parametrize("inner", ["rope", pytest.param("relative", marks=pytest.mark.slow)])
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


@pytest.mark.parametrize(("inner", "inputs"), [("rope", H), ("fox", 2 * H)])
def test_each_layer_draws_its_own_mlp_and_may_share_the_inner_encoding(inner, inputs):
    encoding = build(Dims(H, K, DIMS.width, L, layers=2), inner=inner)
    assert (encoding.layers is None) == (inner == "rope")
    assert jnp.abs(encoding.w1).max() <= inputs**-0.5 and jnp.any(encoding.w1[0] != encoding.w1[1])


@pytest.mark.parametrize("inner", ["alibi", "fire"])
def test_positions_may_be_those_of_all_rows(inner):
    encoding, (q, k, v), places = build(inner=inner), qkv(L), jnp.arange(L)
    shared = attend(q, k, v, encoding, q_positions=places, k_positions=places)
    own = attend(q, k, v, encoding, q_positions=places[None], k_positions=places[None])
    np.testing.assert_allclose(own, shared, atol=2e-6)
