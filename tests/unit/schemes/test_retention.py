"""Retention: the chunked form against float64, its state, and memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import H, K, compiled, documents, qkv, turned, visible
from sizes import DIMS, L

import models
import posenc_jax
from posenc_jax import extensions
from posenc_jax.evaluation import diagnostics


def build(**options):
    return posenc_jax.build("retention", DIMS, **options)


def by_hand(q, k, v, rotate, seen):  # seen [Q, S]
    """The definition in float64."""
    k, v = (np.repeat(np.float64(x), H // x.shape[2], axis=2) for x in (k, v))
    if rotate:
        angle = np.arange(k.shape[1])[:, None, None] * 10_000.0 ** (-np.arange(0, K, 2) / K)
        q, k = turned(q, angle[len(angle) - q.shape[1] :]), turned(k, angle)
    back = np.arange(k.shape[1])[-q.shape[1] :, None] - np.arange(k.shape[1])
    decay = (1 - 2.0 ** -(5 + np.arange(H)))[:, None, None] ** np.maximum(back, 0)
    scores = np.einsum("bqhk,bshk->bhqs", np.float64(q), k) / K**0.5 * decay * seen
    out = np.einsum("bhqs,bshk->bqhk", scores, v)
    return out / np.sqrt(np.mean(out**2, axis=-1, keepdims=True) + 1e-6)


@pytest.mark.parametrize(
    ("queries", "window", "groups", "cut", "rotate"),
    [
        (300, None, H, None, True),
        (300, None, 2, 170, False),
        (300, 40, 2, 128, True),  # in the quadratic form
        (7, None, H, 296, True),
    ],
)
def test_attention_follows_the_definition(queries, window, groups, cut, rotate):
    q, k, v = qkv(queries, 300, groups)
    options = {"window": window, "segments": documents(300, cut)}
    out = compiled(q, k, v, build(rotate=rotate), **options)
    expected = by_hand(q, k, v, rotate, visible(queries, 300, window, cut))
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_both_forms_have_the_same_gradients():
    places = jnp.arange(300)

    @jax.jit
    def gradients(*inputs):
        def loss(given):
            return lambda *x: jnp.sum(jnp.sin(posenc_jax.attention.attend(*x, build(), **given)))

        forms = {}, {"q_positions": places, "k_positions": places}
        return [jax.grad(loss(given), (0, 1, 2))(*inputs) for given in forms]

    for chunked, quadratic in zip(*gradients(*qkv(300)), strict=True):
        np.testing.assert_allclose(chunked, quadratic, atol=1e-5 * np.abs(quadratic).max())


def test_sums_stay_float32_in_bfloat16():
    low = qkv(300, dtype=jnp.bfloat16)
    out = compiled(*low, build())
    exact = compiled(*(x.astype(jnp.float32) for x in low), build())
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(out), exact, atol=0.05)


@pytest.mark.parametrize("length", [32_768, 131_072])
def test_memory_of_a_gradient_is_linear_in_the_length(length):
    shape = jax.ShapeDtypeStruct((1, length, H, K), jnp.float32)

    def loss(*x):
        return jnp.sum(posenc_jax.attention.attend(*x, build()))

    program = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*[shape] * 3).compile()
    rows = length * H * K * 4  # bytes of q, k or v
    assert program.memory_analysis().temp_size_in_bytes < 25 * rows


def test_a_cache_holds_a_state_of_constant_size(make_model):
    config = make_model().config
    short, long = (models.init_cache(config, build(), 3, size) for size in (10, 100_000))
    for cache in (short, long):
        (state,) = {leaf.shape for leaf in jax.tree.leaves(cache.layers)}
        assert state == (3, H, K, K)
    windowed = models.init_cache(config, build().windowed(7), 3, 100)
    assert [held.slots for held in windowed.layers] == [7, 7]


def test_padding_does_not_reach_the_state(forward, make_model, make_tokens):
    model, encoding, counts = make_model(), build(), np.array([3, 9, 14])
    tokens = make_tokens(2 * L, batch=3)
    cache = models.init_cache(model.config, encoding, 3, 2 * L)
    _, cache = model.step(tokens[:, :14], encoding, cache, counts)
    new = tokens[np.arange(3), counts][:, None]
    logits, _ = model.step(new, encoding, cache)
    expected = forward(model, tokens, encoding)[np.arange(3), counts]
    np.testing.assert_allclose(logits[:, 0], expected, rtol=2e-5, atol=2e-5)


def test_weights_in_diagnostics_are_shares_of_their_sizes(make_model, make_tokens):
    model, tokens, encoding = make_model(), make_tokens(L), build(rotate=False)
    weights, *_ = diagnostics.attention_weights(model, encoding, tokens)
    layer = next(iter(model.layers(tokens, encoding)))
    q, k = (np.float64(f(layer.read)) for f in (layer.queries, layer.keys))
    back = np.subtract.outer(np.arange(L), np.arange(L))
    decay = (1 - 2.0 ** -(5 + np.arange(H)))[:, None, None] ** np.maximum(back, 0)
    sizes = np.abs(np.einsum("bhqk,bhsk->bhqs", q, k) * decay * (back >= 0))
    np.testing.assert_allclose(weights, sizes / sizes.sum(-1, keepdims=True), atol=1e-5)


def test_a_window_is_refused_by_a_state():
    refusal = "'window' is made for layers that hold keys and does not fit encoding 'retention'"
    with pytest.raises(ValueError, match=refusal):
        posenc_jax.extend("window:size=4", build(), 1.0)
    assert "window" not in extensions.fitting(build())
    assert "self_extend" not in extensions.fitting(build())  # its attention has no regions
