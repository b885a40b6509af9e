"""CoPE: golden positions and biases, documents, windows, gradients and memory."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import attend_to_ring, qkv
from running import ROOT
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims
from posenc_jax.schemes import cope

pytestmark = pytest.mark.sampled

GOLDEN = json.loads((ROOT / "tests" / "golden" / "content.json").read_text())["cope"]
B, H, K, P = 2, DIMS.heads, DIMS.head_dim, 6


def build(seed=3, **options):
    encoding = posenc_jax.build("cope", DIMS, npos=P, **options)
    return encoding.replace(table=jax.random.normal(jax.random.key(seed), (P, K)))


def by_hand(q, k, v, encoding, seen):  # seen [B, Q, S]
    """The definition in float64, a query and a key at a time."""
    table = np.float64(encoding.table) / (K**0.5 if encoding.divided else 1)
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, H // x.shape[2], axis=2) for x in (k, v))
    out = np.zeros(q.shape)
    for b, i, h in np.ndindex(B, q.shape[1], H):
        keys = np.flatnonzero(seen[b, i])
        z = k[b, keys, h] @ q[b, i, h] / K**0.5
        places = np.minimum(np.cumsum(1 / (1 + np.exp(-z[::-1])))[::-1], P - 1)
        logits = z + np.interp(places, np.arange(P), table @ q[b, i, h])
        weights = np.exp(logits - logits.max(initial=0))
        out[b, i, h] = weights / weights.sum() @ v[b, keys, h]
    return out


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(len(case["scores"])))
def test_biases_and_weights_match_golden_values(case):
    scores, q_dot_e = jnp.array(case["scores"]), jnp.array(case["q_dot_e"])
    seen = np.tri(len(scores), dtype=bool)
    bias = cope.bias(scores, q_dot_e)
    np.testing.assert_allclose(np.where(seen, bias, 0), case["bias"], atol=1e-6)
    weights = jax.nn.softmax(jnp.where(seen, scores + bias, -jnp.inf))
    np.testing.assert_allclose(weights, case["weights_undivided"], atol=1e-6)


def test_positions_of_a_golden_row():
    """Scores 0.1 (a + 1) - 0.3 b and q . e[p] = 0.1 p^2; with q . e[p] = p the bias is p."""
    places = np.arange(6)
    scores = jnp.asarray(0.1 * (places[:, None] + 1) - 0.3 * places, jnp.float32)
    squares = jnp.broadcast_to(0.1 * jnp.arange(4.0) ** 2, (6, 4))
    line = jnp.broadcast_to(jnp.arange(4.0), (6, 4))
    expected = [2.789050, 2.143394, 1.568952, 1.068952, 0.643394, 0.289050]
    np.testing.assert_allclose(cope.bias(scores, line)[5], expected, atol=2e-6)
    expected = [0.794525, 0.471697, 0.270686, 0.120686, 0.064339, 0.028905]
    np.testing.assert_allclose(cope.bias(scores, squares)[5], expected, atol=2e-6)
    batched = cope.bias(jnp.stack([scores] * 3)[:, None], jnp.stack([line] * 3)[:, None])
    assert batched.shape == (3, 1, 6, 6)


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize(
    ("queries", "window", "groups", "cut"),
    [(L, None, 4, None), (L, 5, 2, None), (3, 9, 4, None), (L, None, 2, 7), (L, 4, 4, 7)],
)
def test_attention_counts_the_gates_of_visible_keys(queries, window, groups, cut, divided):
    encoding, (q, k, v) = build(divided=divided), qkv(queries, L, groups)
    segments = None if cut is None else jnp.asarray(np.arange(L) >= cut)[None].repeat(B, 0)
    out = jax.jit(lambda: attend(q, k, v, encoding, window=window, segments=segments))()
    back = np.arange(L - queries, L)[:, None] - np.arange(L)
    seen = (back >= 0) & (back < (window or L))
    if cut is not None:
        seen &= (np.arange(L)[:, None] >= cut) == (np.arange(L) >= cut)
    expected = by_hand(q, k, v, encoding, np.broadcast_to(seen, (B, *seen.shape)))
    np.testing.assert_allclose(out, expected, atol=5e-6)


def test_keys_of_a_ring_are_sorted():
    encoding, (q, k, v) = build(), qkv(1, 9)
    out, order = attend_to_ring(q, k, v, encoding)
    rows = np.argsort(order)
    expected = by_hand(q, k[:, rows], v[:, rows], encoding, np.ones((B, 1, 9), bool))
    np.testing.assert_allclose(out, expected, atol=5e-6)


def test_a_table_of_zeros_is_no_position():
    q, k, v = qkv(40)
    start = posenc_jax.build("cope", DIMS)
    assert start.table.shape == (64, K) and not np.any(start.table)
    expected = attend(q, k, v, posenc_jax.build("nope", DIMS))
    np.testing.assert_allclose(attend(q, k, v, start), expected, atol=2e-6)


def test_gradients_reach_the_table_and_the_counting_gates():
    encoding, (q, k, v) = build(), qkv(L)

    @jax.jit
    def loss(table, k):
        return jnp.sum(jnp.sin(3 * attend(q, k, v, encoding.replace(table=table))))

    table, keys = jax.jit(jax.grad(loss, (0, 1)))(encoding.table, k)
    step, at = 1e-2, (1, 3, 2, 4)
    nudge = jnp.zeros_like(k).at[at].set(step)
    slope = (loss(encoding.table, k + nudge) - loss(encoding.table, k - nudge)) / (2 * step)
    np.testing.assert_allclose(keys[at], slope, rtol=2e-2, atol=2e-3)
    nudge = jnp.zeros_like(table).at[2, 5].set(step)
    slope = (loss(encoding.table + nudge, k) - loss(encoding.table - nudge, k)) / (2 * step)
    np.testing.assert_allclose(table[2, 5], slope, rtol=2e-2, atol=2e-3)


def test_bfloat16_counts_in_float32():
    q, k, v = (x.astype(jnp.bfloat16) for x in qkv(L))
    out = attend(q, k, v, build())
    assert out.dtype == jnp.bfloat16
    exact = by_hand(q, k, v, build(), np.broadcast_to(np.tri(L, dtype=bool), (B, L, L)))
    np.testing.assert_allclose(out.astype(jnp.float32), exact, atol=0.03)


def test_each_layer_has_its_own_table():
    layers = posenc_jax.build("cope", Dims(H, K, DIMS.width, L, layers=3), npos=5)
    assert layers.layers == 3 and layers.table.shape == (3, 5, K)


@pytest.mark.parametrize(("window", "cut"), [(None, None), (5, 7)])
def test_queries_in_blocks_equal_the_whole_row(window, cut, monkeypatch):
    encoding, (q, k, v) = build(), qkv(L, L, 2)
    segments = None if cut is None else jnp.asarray(np.arange(L) >= cut)[None].repeat(B, 0)

    def loss(table, q):
        row = attend(q, k, v, encoding.replace(table=table), window=window, segments=segments)
        return jnp.sum(jnp.sin(3 * row)), row

    def measured():
        return jax.jit(jax.grad(loss, (0, 1), has_aux=True))(encoding.table, q)

    whole = measured()
    monkeypatch.setattr(cope, "SCORES", 5 * B * H * L)  # five queries a block, the last one padded
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), measured(), whole)


def test_memory_is_linear_in_the_length():
    def held(length):
        shapes = [jax.ShapeDtypeStruct((1, length, H, K), jnp.float32)] * 3
        compiled = jax.jit(lambda q, k, v: attend(q, k, v, build())).lower(*shapes).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert held(8_192) < 2.1 * held(4_096)


def test_a_table_of_one_position_is_refused():
    with pytest.raises(ValueError, match="npos must be a whole number of at least 2; got 1"):
        posenc_jax.build("cope", DIMS, npos=1)
