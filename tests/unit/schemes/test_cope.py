"""CoPE: the definition, visible keys, gradients in blocks and memory."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import B, H, K, compiled, documents, qkv, visible
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import attend

pytestmark = pytest.mark.sampled

P = 6


def build(**options):
    encoding = posenc_jax.build("cope", DIMS, npos=P, **options)
    table = np.random.default_rng(3).normal(size=(P, K))
    return encoding.replace(table=jnp.asarray(table, jnp.float32))


def by_hand(q, k, v, encoding, seen):  # seen [Q, S]
    """The definition in float64, a query and a key at a time."""
    table = np.float64(encoding.table) / (K**0.5 if encoding.divided else 1)
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, H // x.shape[2], axis=2) for x in (k, v))
    out = np.zeros(q.shape)
    for b, i, h in np.ndindex(B, q.shape[1], H):
        keys = np.flatnonzero(seen[i])
        z = k[b, keys, h] @ q[b, i, h] / K**0.5
        places = np.minimum(np.cumsum(1 / (1 + np.exp(-z[::-1])))[::-1], P - 1)
        logits = z + np.interp(places, np.arange(P), table @ q[b, i, h])
        weights = np.exp(logits - logits.max(initial=0))
        out[b, i, h] = weights / weights.sum() @ v[b, keys, h]
    return out


@pytest.mark.parametrize(
    ("queries", "window", "groups", "cut", "divided"),
    [(L, 4, 2, 7, False), (L, None, 4, None, True), (3, 9, 4, None, False)],
)
def test_attention_counts_the_gates_of_visible_keys(queries, window, groups, cut, divided):
    encoding, (q, k, v) = build(divided=divided), qkv(queries, L, groups)
    out = compiled(q, k, v, encoding, window=window, segments=documents(L, cut))
    expected = by_hand(q, k, v, encoding, visible(queries, L, window, cut))
    np.testing.assert_allclose(out, expected, atol=5e-6)


def test_a_table_of_zeros_is_no_position():
    q, k, v = qkv(40)
    start = posenc_jax.build("cope", DIMS)
    assert start.table.shape == (64, K) and not np.any(start.table)
    expected = compiled(q, k, v, posenc_jax.build("nope", DIMS))
    np.testing.assert_allclose(compiled(q, k, v, start), expected, atol=2e-6)


def test_gradients_are_finite_differences_in_whole_rows_and_in_blocks(monkeypatch):
    """Those of the table, the queries and the keys, whose gates count."""
    encoding, (q, k, v) = build(), qkv(L, L, 2)

    def loss(table, q, k):
        encoding_ = encoding.replace(table=table)
        row = attend(q, k, v, encoding_, window=5, segments=documents(L, 7))
        return jnp.sum(jnp.sin(3 * row)), row

    def measured():
        return jax.jit(jax.value_and_grad(lambda *x: loss(*x), (0, 1, 2), has_aux=True))

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
    module = sys.modules["posenc_jax.attention.sharpest"]
    monkeypatch.setattr(
        module, "SCORES", 5 * B * H * L
    )  # five queries a block, the last one padded
    in_blocks = measured()(encoding.table, q, k)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), in_blocks, whole)


def test_memory_is_linear_in_the_length():
    def held(length):
        shapes = [jax.ShapeDtypeStruct((1, length, H, K), jnp.float32)] * 3
        return compiled.lower(*shapes, build()).compile().memory_analysis().temp_size_in_bytes

    assert held(8_192) < 2.1 * held(4_096)
