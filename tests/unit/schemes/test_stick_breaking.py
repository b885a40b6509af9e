"""Stick-breaking attention: blocks, documents, windows and what is left."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import B, H, K, compiled, qkv, visible
from sizes import DIMS

import posenc_jax
from posenc_jax.attention import attend

pytestmark = pytest.mark.sampled

VARIANTS = [{}, {"attend_current": True}, {"remainder": True}]


def build(dims=DIMS, **options):
    return posenc_jax.build("stick_breaking", dims, **options)


def broken(q, k, v, seen, own=None):
    """The definition in float64, a key at a time from the last; `seen` is [B or 1, Q, S]."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, H // x.shape[2], axis=2) for x in (k, v))
    share = 1 / (1 + np.exp(-np.einsum("bqhk,bshk->bhqs", q, k) / K**0.5))
    left, out = np.ones(share.shape[:3]), np.zeros(q.shape)
    for key in reversed(range(k.shape[1])):
        taken = np.where(seen[:, None, :, key], left * share[..., key], 0)
        out += np.einsum("bhq,bhk->bqhk", taken, v[:, key])
        left -= taken
    return out if own is None else out + np.einsum("bhq,bqhk->bqhk", left, v[:, own])


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "window", "groups"),
    [
        (40, 40, None, 2),
        (300, 300, 150, 2),
        (20, 300, None, 4),
        (1, 300, 7, 4),
    ],
)
def test_blocks_follow_the_definition(queries, keys, window, groups, options):
    encoding, (q, k, v) = build(**options), qkv(queries, keys, groups)
    seen = visible(queries, keys, window, nearest=0 if encoding.attend_current else 1)
    own = np.arange(keys - queries, keys) if encoding.remainder else None
    out = compiled(q, k, v, encoding, window=window)
    np.testing.assert_allclose(out, broken(q, k, v, seen[None], own), atol=2e-6)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_given_positions_and_documents_decide_what_is_seen(options):
    encoding, (q, k, v) = build(**options), qkv(3, 150)
    document = (np.arange(150) >= 60).astype(np.int32)[None].repeat(B, 0)
    places = np.r_[0:60, 0:180:2]
    q_places = np.array([60, 11, 100])  # all in document 1
    given = {"q_positions": q_places, "k_positions": places, "segments": document}
    out = compiled(q, k, v, encoding, window=50, **given)
    back = q_places[:, None] - places
    seen = (back >= (0 if encoding.attend_current else 1)) & (back < 50)
    seen = seen & (document[:, None] == 1)
    expected = broken(q, k, v, seen)
    if encoding.remainder:  # the own keys are key 90, none, and key 110
        left = broken(q, k, np.ones_like(v), seen)
        own = np.stack([v[:, 90], np.zeros_like(v[:, 0]), v[:, 110]], axis=1)
        expected = expected + (1 - left) * own
    np.testing.assert_allclose(out, expected, atol=2e-6)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradients_are_those_of_the_definition(options):
    encoding, length = build(**options), 200
    q, k, v = qkv(length, groups=2)
    seen = visible(length, length, 90, nearest=0 if encoding.attend_current else 1)

    def written(q, k, v):
        k, v = (jnp.repeat(x, 2, axis=2) for x in (k, v))
        z = jnp.einsum("bqhk,bshk->bhqs", q, k, precision="highest") / K**0.5
        leaves = jnp.where(seen, jax.nn.log_sigmoid(-z), 0)
        after = jax.lax.cumsum(leaves, axis=3, reverse=True) - leaves
        weights = jnp.where(seen, jnp.exp(jax.nn.log_sigmoid(z) + after), 0)
        out = jnp.einsum("bhqs,bshk->bqhk", weights, v, precision="highest")
        left = jnp.exp(jnp.sum(leaves, axis=3)).swapaxes(1, 2)[..., None]
        return out + left * v if encoding.remainder else out

    def both(q, k, v):
        ways = lambda *x: attend(*x, encoding, window=90), written  # noqa: E731
        loss = lambda way: lambda *x: jnp.sum(jnp.sin(3 * way(*x)))  # noqa: E731
        return [jax.grad(loss(way), (0, 1, 2))(q, k, v) for way in ways]

    for actual, expected in zip(*jax.jit(both)(q, k, v), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5 * np.abs(expected).max())


def test_far_keys_of_long_rows_have_exact_logs():
    """The sum of 4,000 logs is about -3,000; weights of the nearest keys stay exact."""
    encoding = build(posenc_jax.Dims(1, K, K, 16))
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(B, n, 1, K)), jnp.float32) for n in (3, 4_000, 4_000))
    out = compiled(q, k, v, encoding)
    wide = [np.repeat(x, H, axis=2) for x in (q, k, v)]
    expected = broken(*wide, visible(3, 4_000, nearest=1)[None])[:, :, :1]
    np.testing.assert_allclose(out, expected, atol=2e-6)


@pytest.mark.slow
def test_memory_of_a_gradient_is_linear_in_the_length():
    def temporary(length):
        shapes = [jax.ShapeDtypeStruct((1, length, 1, 64), jnp.float32)] * 3
        encoding = build(posenc_jax.Dims(1, 64, 64, 16))
        loss = jax.grad(lambda *x: jnp.sum(attend(*x, encoding) ** 2), (0, 1, 2))
        return jax.jit(loss).lower(*shapes).compile().memory_analysis().temp_size_in_bytes

    assert temporary(8_192) < 3 * temporary(4_096)
