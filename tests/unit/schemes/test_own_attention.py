"""Encodings with their own attention: CoPE, stick-breaking and retention."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import (
    B,
    H,
    K,
    build,
    close,
    compiled,
    documents,
    mixed,
    qkv,
    scores_of,
    turned,
    visible,
)
from sizes import L

import models
from posenc_jax.attention import attend, attention
from posenc_jax.encoding import Dims
from posenc_jax.evaluation import diagnostics
from posenc_jax.positions import tokens_of_row
from posenc_jax.schemes import retention

P = 6
VARIANTS = [{}, {"attend_current": True}, {"remainder": True}]  # of stick-breaking
DECAYS = (1 - 2.0 ** -(5 + np.arange(H)))[:, None, None]  # of retention


def wide(v):
    """Values [B, S, G, K] of each head, in float64."""
    return np.repeat(np.float64(v), H // v.shape[2], axis=2)


def temporary(run, length, heads=H, head_dim=K):
    """The temporary bytes of a program of queries, keys and values."""
    shape = jax.ShapeDtypeStruct((1, length, heads, head_dim), jnp.float32)
    return jax.jit(run).lower(shape, shape, shape).compile().memory_analysis().temp_size_in_bytes


def gradient_of(encoding):
    return jax.grad(lambda *x: jnp.sum(attend(*x, encoding) ** 2), (0, 1, 2))


# CoPE


def cope(**options):
    encoding = build("cope", npos=P, **options)
    table = np.random.default_rng(3).normal(size=(P, K))
    return encoding.replace(table=jnp.asarray(table, jnp.float32))


def counted(q, k, v, encoding, seen):  # seen [Q, S]
    """The definition in float64."""
    table = np.float64(encoding.table) / (K**0.5 if encoding.divided else 1)
    scores, at_places = scores_of(q, k), np.einsum("bqhk,pk->bhqp", np.float64(q), table)
    gates = np.where(seen, 1 / (1 + np.exp(-scores)), 0)
    places = np.minimum(np.cumsum(gates[..., ::-1], axis=-1)[..., ::-1], P - 1)
    for row in np.ndindex(scores.shape[:3]):
        scores[row] += np.interp(places[row], np.arange(P), at_places[row])
    return mixed(scores, seen, v)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("queries", "window", "groups", "cut", "divided"),
    [(L, 4, 2, 7, False), (L, None, 4, None, True), (3, 9, 4, None, False)],
)
def test_cope_counts_the_gates_of_visible_keys(queries, window, groups, cut, divided):
    encoding, (q, k, v) = cope(divided=divided), qkv(queries, L, groups)
    out = compiled(q, k, v, encoding, window=window, segments=documents(L, cut))
    expected = counted(q, k, v, encoding, visible(queries, L, window, cut))
    np.testing.assert_allclose(out, expected, atol=5e-6)


def test_a_table_of_zeros_is_no_position():
    q, k, v = qkv(40)
    start = build("cope")
    assert start.table.shape == (64, K) and not np.any(start.table)
    close(compiled(q, k, v, start), compiled(q, k, v, build("nope")), atol=2e-6)


def test_gradients_of_cope_are_finite_differences_in_whole_rows_and_in_blocks(monkeypatch):
    """Those of the table, the queries and the keys, whose gates count."""
    encoding, (q, k, v) = cope(), qkv(L, L, 2)

    def measured():
        def loss(table, q, k):
            moved = encoding.replace(table=table)
            row = attend(q, k, v, moved, window=5, segments=documents(L, 7))
            return jnp.sum(jnp.sin(3 * row)), row

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))

    gradient = measured()
    (_, row), slopes = whole = gradient(encoding.table, q, k)
    step = 1e-2
    for side, at in ((0, (2, 5)), (2, (1, 3, 1, 4))):
        given = [encoding.table, q, k]
        ends = []
        for way in (step, -step):
            nudge = np.zeros(given[side].shape, np.float32)
            nudge[at] = way
            moved = [x + nudge if i == side else x for i, x in enumerate(given)]
            ends.append(gradient(*moved)[0][0])
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(slopes[side][at], slope, rtol=2e-2, atol=2e-3)
        assert abs(slope) > 2e-3
    # Five queries a block, the last one padded.
    monkeypatch.setattr(sys.modules["posenc_jax.attention.sharpest"], "SCORES", 5 * B * H * L)
    close(measured()(encoding.table, q, k), whole, atol=2e-5)


def test_memory_of_cope_is_linear_in_the_length():
    short, long = (temporary(lambda *x: attend(*x, cope()), n) for n in (4_096, 8_192))
    assert long < 2.1 * short


# Stick-breaking


def broken(q, k, v, seen, own=None):
    """The definition in float64, a key at a time from the last; `seen` is [B or 1, Q, S]."""
    share, v = 1 / (1 + np.exp(-scores_of(q, k))), wide(v)
    left, out = np.ones(share.shape[:3]), np.zeros(q.shape)
    for key in reversed(range(k.shape[1])):
        taken = np.where(seen[:, None, :, key], left * share[..., key], 0)
        out += np.einsum("bhq,bhk->bqhk", taken, v[:, key])
        left -= taken
    return out if own is None else out + np.einsum("bhq,bqhk->bqhk", left, v[:, own])


def nearest(encoding):
    return 0 if encoding.attend_current else 1


@pytest.mark.sampled
@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "window", "groups"),
    [(40, 40, None, 2), (300, 300, 150, 2), (20, 300, None, 4), (1, 300, 7, 4)],
)
def test_blocks_break_sticks_by_the_definition(queries, keys, window, groups, options):
    encoding, (q, k, v) = build("stick_breaking", **options), qkv(queries, keys, groups)
    seen = visible(queries, keys, window, nearest=nearest(encoding))
    own = np.arange(keys - queries, keys) if encoding.remainder else None
    out = compiled(q, k, v, encoding, window=window)
    np.testing.assert_allclose(out, broken(q, k, v, seen[None], own), atol=2e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_given_positions_and_documents_decide_which_stick_is_broken(options):
    encoding, (q, k, v) = build("stick_breaking", **options), qkv(3, 150)
    document = (np.arange(150) >= 60).astype(np.int32)[None].repeat(B, 0)
    places = np.r_[0:60, 0:180:2]
    q_places = np.array([60, 11, 100])  # all in document 1
    given = {"q_positions": q_places, "k_positions": places, "segments": document}
    out = compiled(q, k, v, encoding, window=50, **given)
    back = q_places[:, None] - places
    seen = (back >= nearest(encoding)) & (back < 50) & (document[:, None] == 1)
    expected = broken(q, k, v, seen)
    if encoding.remainder:  # the own keys are key 90, none, and key 110
        left = broken(q, k, np.ones_like(v), seen)
        own = np.stack([v[:, 90], np.zeros_like(v[:, 0]), v[:, 110]], axis=1)
        expected = expected + (1 - left) * own
    np.testing.assert_allclose(out, expected, atol=2e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradients_of_stick_breaking_are_those_of_the_definition(options):
    encoding, length = build("stick_breaking", **options), 200
    seen = visible(length, length, 90, nearest=nearest(encoding))

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

    for actual, expected in zip(*jax.jit(both)(*qkv(length, groups=2)), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5 * np.abs(expected).max())


def test_far_keys_of_long_rows_have_exact_logs():
    """The sum of 4,000 logs is about -3,000; weights of the nearest keys stay exact."""
    encoding = build("stick_breaking", Dims(1, K, K, 16))
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(B, n, 1, K)), jnp.float32) for n in (3, 4_000, 4_000))
    expected = broken(np.repeat(q, H, axis=2), k, v, visible(3, 4_000, nearest=1)[None])[:, :, :1]
    np.testing.assert_allclose(compiled(q, k, v, encoding), expected, atol=2e-6)


@pytest.mark.slow
def test_memory_of_a_gradient_of_stick_breaking_is_linear_in_the_length():
    gradient = gradient_of(build("stick_breaking", Dims(1, 64, 64, 16)))
    assert temporary(gradient, 8_192, 1, 64) < 3 * temporary(gradient, 4_096, 1, 64)


# Retention


def decayed(q, k, v, rotate, seen, places=None):  # seen [Q, S]
    """The definition in float64."""
    places = np.arange(k.shape[1]) if places is None else places
    if rotate:
        angle = places[:, None, None] * 10_000.0 ** (-np.arange(0, K, 2) / K)
        q, k = turned(q, angle[len(angle) - q.shape[1] :]), turned(k, angle)
    back = places[-q.shape[1] :, None] - places
    weights = scores_of(q, k) * DECAYS ** np.maximum(back, 0) * seen
    out = np.einsum("bhqs,bshk->bqhk", weights, wide(v))
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
def test_retention_follows_the_definition(queries, window, groups, cut, rotate):
    q, k, v = qkv(queries, 300, groups)
    options = {"window": window, "segments": documents(300, cut)}
    out = compiled(q, k, v, build("retention", rotate=rotate), **options)
    expected = decayed(q, k, v, rotate, visible(queries, 300, window, cut))
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_retention_decays_by_drawn_positions():
    encoding = build("randomized", inner="retention", rotate=False, max_position=900)
    key = jax.random.key(1)
    drawn = np.asarray(encoding.positions(L, key))
    q, k, v = qkv(L)
    tokens = tokens_of_row(encoding, B, L, key)
    rows = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    out = jnp.swapaxes(attention(*rows, encoding, tokens, tokens), 1, 2)
    expected = decayed(q, k, v, False, visible(L, L), drawn)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_both_forms_of_retention_have_the_same_gradients():
    places, encoding = jnp.arange(300), build("retention")

    @jax.jit
    def gradients(*inputs):
        def loss(given):
            return lambda *x: jnp.sum(jnp.sin(attend(*x, encoding, **given)))

        forms = {}, {"q_positions": places, "k_positions": places}
        return [jax.grad(loss(given), (0, 1, 2))(*inputs) for given in forms]

    for chunked, quadratic in zip(*gradients(*qkv(300)), strict=True):
        np.testing.assert_allclose(chunked, quadratic, atol=1e-5 * np.abs(quadratic).max())


@pytest.mark.parametrize("cut", [None, 170])
def test_chunks_of_retention_at_once_are_chunks_in_turn(cut, monkeypatch):
    """On a GPU, at a length that they do not divide: outputs, gradients, and the state after the
    first tokens alone."""
    heads = [jnp.swapaxes(x, 1, 2) for x in qkv(300)]
    ids = documents(300, cut)
    before = jnp.asarray(np.random.default_rng(4).normal(size=(B, H, K, K)), jnp.float32)
    counts = np.resize([300, 150, 7], B)
    given = (None, before, counts) if ids is None else (ids.astype(jnp.int32),)

    def run():
        def both(*heads):
            out, after = build("retention")._by_chunks(*heads, *given)
            return jnp.sum(jnp.sin(out)) + jnp.sum(jnp.sin(after)), (out, after)

        return jax.jit(jax.grad(both, (0, 1, 2), has_aux=True))(*heads)

    in_turn = run()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(retention, "CHUNKS", 2)
    for one, other in zip(*map(jax.tree.leaves, (run(), in_turn)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6 * np.abs(other).max())


def test_sums_of_retention_stay_float32_in_bfloat16():
    low = qkv(300, dtype=jnp.bfloat16)
    out = compiled(*low, build("retention"))
    exact = compiled(*(x.astype(jnp.float32) for x in low), build("retention"))
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(out), exact, atol=0.05)


@pytest.mark.parametrize("length", [32_768, 131_072])
def test_memory_of_a_gradient_of_retention_is_linear_in_the_length(length):
    rows = length * H * K * 4  # bytes of q, k or v
    assert temporary(gradient_of(build("retention")), length) < 25 * rows


def test_a_cache_of_retention_holds_a_state_of_constant_size(make_model):
    config, encoding = make_model().config, build("retention")
    for size in (10, 100_000):
        cache = models.init_cache(config, encoding, 3, size)
        assert {leaf.shape for leaf in jax.tree.leaves(cache.layers)} == {(3, H, K, K)}
    windowed = models.init_cache(config, encoding.windowed(7), 3, 100)
    assert [held.slots for held in windowed.layers] == [7, 7]


def test_padding_does_not_reach_the_state(forward, make_model, make_tokens):
    model, encoding, counts = make_model(), build("retention"), np.array([3, 9, 14])
    tokens = make_tokens(2 * L, batch=3)
    cache = models.init_cache(model.config, encoding, 3, 2 * L)
    _, cache = model.step(tokens[:, :14], encoding, cache, counts)
    logits, _ = model.step(tokens[np.arange(3), counts][:, None], encoding, cache)
    expected = forward(model, tokens, encoding)[np.arange(3), counts]
    np.testing.assert_allclose(logits[:, 0], expected, rtol=2e-5, atol=2e-5)


def test_weights_in_diagnostics_are_shares_of_their_sizes(make_model, make_tokens):
    model, tokens, encoding = make_model(), make_tokens(L), build("retention", rotate=False)
    weights, *_ = diagnostics.attention_weights(model, encoding, tokens)
    layer = next(iter(model.layers(tokens, encoding)))
    q, k = (np.float64(f(layer.read)) for f in (layer.queries, layer.keys))
    back = np.subtract.outer(np.arange(L), np.arange(L))
    products = np.einsum("bhqk,bhsk->bhqs", q, k) * DECAYS ** np.maximum(back, 0)
    sizes = np.abs(products * (back >= 0))
    np.testing.assert_allclose(weights, sizes / sizes.sum(-1, keepdims=True), atol=1e-5)
