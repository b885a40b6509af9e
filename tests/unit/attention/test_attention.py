"""Plain attention against float64, the contract of its arguments, and the largest logits alone."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import B, H, K, build, compiled, content, documents, mixed, qkv, scores_of, turned
from sizes import DIMS, VOCAB, L

import posenc_jax
from posenc_jax import extensions, schemes
from posenc_jax.attention import attend
from posenc_jax.attention.plain import kth_largest, spread
from posenc_jax.evaluation import diagnostics
from posenc_jax.layers import Capped
from posenc_jax.testing import equations

pytestmark = pytest.mark.sampled


def by_hand(q, k, v, encoding, q_positions, k_positions, *, segments=None, window=None):
    """Attention in float64; positions are [Q] and [S], or per row."""
    bias = encoding.bias(jnp.asarray(q_positions), jnp.asarray(k_positions))
    q_positions = np.broadcast_to(q_positions, q.shape[:2])
    k_positions = np.broadcast_to(k_positions, k.shape[:2])
    if hasattr(encoding, "inv_freq"):
        freq = np.float64(encoding.inv_freq)
        q = turned(q, q_positions[..., None, None] * freq)
        k = turned(k, k_positions[..., None, None] * freq)
    scores = scores_of(q, k) + (0 if bias is None else np.float64(bias))
    back = q_positions[:, :, None] - k_positions[:, None]
    seen = (back >= 0) & (back < (window or np.inf))
    if segments is not None:
        seen &= np.asarray(segments)[:, :, None] == np.asarray(segments)[:, None]
    return mixed(scores, seen[:, None], v)


CUTS = (6, L - 6)
ROW = jnp.array([[0] * cut + [1] * (L - cut) for cut in CUTS])
IN_DOCUMENT = np.stack([np.r_[0:cut, 0 : L - cut] for cut in CUTS])


@pytest.mark.parametrize("name", ["nope", "rope", "alibi", "t5", "fire"])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("window", [None, 1, 5])
@pytest.mark.parametrize("segments", [None, ROW], ids=["row", "packed"])
def test_attention_matches_float64(name, groups, window, segments):
    encoding = build(name)
    q, k, v = qkv(L, L, groups)
    out = compiled(q, k, v, encoding, window=window, segments=segments)
    places = np.arange(L) if segments is None else IN_DOCUMENT
    expected = by_hand(q, k, v, encoding, places, places, segments=segments, window=window)
    np.testing.assert_allclose(out, expected, atol=2e-6)


def test_a_placed_row_holds_its_documents():
    encoding, (q, k, v), x = build("fox"), qkv(L), content(B, L, DIMS.width)
    expected = compiled(
        q, k, v, encoding, segments=ROW, features=encoding.read(x, document=jnp.asarray(ROW))
    )
    x, row = posenc_jax.place(x, encoding, None, ROW)
    features = encoding.read(x, document=row.document)
    for last in (0, L - 3):
        out = compiled(q[:, last:], k, v, encoding, row, features=features)
        np.testing.assert_allclose(out, expected[:, last:], atol=2e-6)


@pytest.mark.parametrize("implementation", ["plain", "blockwise"])
@pytest.mark.parametrize("groups", [4, 2])
def test_scores_are_capped_before_the_bias_and_the_window(implementation, groups):
    alibi, cap = build("alibi"), 0.7
    capped = Capped(dims=alibi.dims, inner=alibi, cap=cap)
    q, k, v = qkv(L, L, groups)
    out = compiled(q, k, v, capped, window=5, implementation=implementation)
    bias = np.float64(alibi.bias(jnp.arange(L), jnp.arange(L)))
    back = np.arange(L)[:, None] - np.arange(L)
    expected = mixed(cap * np.tanh(scores_of(q, k) / cap) + bias, (back >= 0) & (back < 5), v)
    np.testing.assert_allclose(out, expected, atol=2e-6)


@pytest.mark.parametrize("name", ["rope", "alibi", "fire"])
@pytest.mark.parametrize("window", [None, 4])
def test_query_positions_may_lie_between_key_positions(name, window):
    encoding = build(name)
    q, k, v = qkv(3, L)
    k_positions = jnp.sort(jax.random.choice(jax.random.key(1), 90, (L,), replace=False))
    q_positions = jnp.array([k_positions[2], k_positions[7] + 1, 95])
    given = {"q_positions": q_positions, "k_positions": k_positions}
    out = compiled(q, k, v, encoding, window=window, **given)
    expected = by_hand(q, k, v, encoding, q_positions, k_positions, window=window)
    np.testing.assert_allclose(out, expected, atol=3e-6)


def test_a_query_before_every_key_sees_nothing():
    q, k, v = qkv(2, L)
    given = {"q_positions": jnp.array([3, 50]), "k_positions": 20 + jnp.arange(L)}
    out = compiled(q, k, v, build("nope"), **given)
    np.testing.assert_array_equal(out[:, 0], 0)
    assert jnp.all(out[:, 1] != 0)


@pytest.mark.parametrize(
    ("name", "queries"), [("alibi", 1), ("t5", 5), ("kerple_log", L), ("sandwich", 5)]
)
def test_spreading_the_curve_gives_the_bias(name, queries):
    encoding = build(name)
    laid_out = jax.jit(lambda e: spread(e.curve(jnp.arange(L)), queries))(encoding)
    bias = jax.jit(lambda e: e.bias(jnp.arange(L - queries, L), jnp.arange(L)))(encoding)
    seen = np.arange(L)[None, :] <= np.arange(L - queries, L)[:, None]
    np.testing.assert_allclose(np.where(seen, laid_out, 0), np.where(seen, bias, 0), rtol=1e-6)


@pytest.mark.parametrize("name", ["rope", "fire", "t5"])
def test_packed_positions_may_be_given_by_row_or_once_for_all(name):
    """Equal arrays compare by value under jit, and segment numbers may repeat."""
    encoding = build(name)
    q, k, v = qkv(L)
    row, both = jnp.asarray(IN_DOCUMENT[0]), jnp.tile(ROW[0], (B, 1))
    expected = by_hand(q, k, v, encoding, row, row, segments=both)
    for segments in (ROW[0], both):
        out = compiled(q, k, v, encoding, q_positions=row, k_positions=row + 0, segments=segments)
        np.testing.assert_allclose(out, expected, atol=2e-6)
        default = compiled(q, k, v, encoding, segments=segments)
        np.testing.assert_allclose(default, expected, atol=2e-6)
        last = compiled(q[:, -12:], k, v, encoding, segments=segments)
        np.testing.assert_allclose(last, expected[:, -12:], atol=2e-6)
    places = jnp.asarray(IN_DOCUMENT)
    out = compiled(q, k, v, encoding, q_positions=places, k_positions=places, segments=ROW)
    expected = by_hand(q, k, v, encoding, places, places, segments=ROW)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    again = jnp.array([[3] * 4 + [5] * 4 + [3] * (L - 8)] * 2)
    once = jnp.array([[0] * 4 + [1] * 4 + [2] * (L - 8)] * 2)
    np.testing.assert_array_equal(
        compiled(q, k, v, encoding, segments=again), compiled(q, k, v, encoding, segments=once)
    )


def test_bfloat16_products_accumulate_in_float32():
    q, k, v = qkv(L, dtype=jnp.bfloat16)
    jaxpr = jax.make_jaxpr(lambda: attend(q, k, v, build("nope")))()
    products = [e for e in equations(jaxpr.jaxpr) if e.primitive.name == "dot_general"]
    assert [e.outvars[0].aval.dtype for e in products] == [jnp.float32, jnp.float32]


def test_heads_may_have_their_own_rope_base():
    bases = [10.0, 100.0, 1e4, 1e6]
    q, k, v = qkv(L, groups=2)
    out = compiled(q, k, v, build("rope", base=bases))
    for head, base in enumerate(bases):
        alone = compiled(q, k, v, build("rope", base=base))
        np.testing.assert_allclose(out[:, :, head], alone[:, :, head], atol=1e-6)


def test_a_gain_per_head_scales_the_logits_of_that_head():
    q, k, v = qkv(L)
    gains = jnp.array([1.0, 1.2, 1.0, 0.5])
    rope = build("rope")
    out = compiled(q, k, v, rope.replace(gain=jnp.broadcast_to(gains[:, None], (H, K // 2))))
    scaled = compiled(q * (gains**2)[None, None, :, None], k, v, rope)
    np.testing.assert_allclose(out, scaled, atol=1e-6)


# The extension `topk`: the keys of the highest logits, those of equal logits too


def topk(encoding, k):
    return posenc_jax.extend("topk", encoding, 1.0, k=k)


def test_keys_of_equal_logits_are_kept():
    q, k, v = qkv(L)
    out = compiled(q, jnp.zeros_like(k), v, topk(build("nope"), 1))
    np.testing.assert_allclose(out, compiled(q, jnp.zeros_like(k), v, build("nope")), atol=1e-6)


def test_the_kth_largest_is_that_of_a_sort():
    scores = np.random.default_rng(0).normal(0, 3, (5, 197)).astype(np.float32).round(1)
    scores[:, :3] = -0.0, 0.0, np.finfo(np.float32).min
    scores[0, 2:] = np.finfo(np.float32).min
    for k in (1, 2, 3, 20, 197):
        np.testing.assert_array_equal(
            jax.jit(kth_largest, static_argnums=1)(scores, k), np.sort(scores)[:, -k]
        )


HARD = [("rope", "yarn"), ("rope", "self_extend:group=2"), ("rope", "dca"), ("nope", "logn")]
HARD += [("rope", "streaming:window=6"), ("alibi", "window:size=6")]


@pytest.mark.parametrize(
    ("name", "extension"), [*((name, "none") for name in schemes.names()), *HARD]
)
def test_weights_are_the_largest_of_all(name, extension, make_model, make_tokens, drawn):
    encoding = posenc_jax.extend(extension, drawn(build(name)).layer(0), 2.0)
    if "topk" not in extensions.fitting(encoding):
        assert name in ("retention", "stick_breaking")
        with pytest.raises(ValueError, match="made for attention by a softmax and does not fit"):
            topk(encoding, 4)
        return
    model, tokens = make_model(layers=1), np.random.default_rng(0).permutation(VOCAB)[None]
    tokens = tokens[:, : encoding.reach].astype(np.int32)
    (weights,) = diagnostics.attention_weights(model, encoding, tokens)
    (own,) = diagnostics.attention_weights(model, topk(encoding, 4), tokens)
    kept = np.sort(weights, axis=-1)[..., -4:-3] <= weights
    expected = np.where(kept, weights, 0)
    assert np.all((np.asarray(own) > 0).sum(-1) <= 4)
    np.testing.assert_allclose(own, expected / expected.sum(-1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "extension"), [("ssmax", "none"), ("fox", "none"), ("rope", "dca"), ("fire", "none")]
)
@pytest.mark.parametrize("cut", [None, 17])
def test_some_queries_at_a_time_give_the_same(name, extension, cut, monkeypatch):
    encoding = topk(posenc_jax.extend(extension, build(name), 4.0), 3)
    (q, k, v), x, segments = qkv(40, groups=2), content(2, 40, DIMS.width), documents(40, cut)
    features = encoding.read(x, None, segments)

    def out(q, **options):
        return jax.jit(lambda q: attend(q, k, v, encoding, features=features, **options))(q)

    whole, last = out(q, segments=segments), out(q[:, -9:])
    monkeypatch.setattr(sys.modules["posenc_jax.attention.sharpest"], "SCORES", 7 * 2 * 4 * 40)
    np.testing.assert_allclose(out(q, segments=segments), whole, atol=1e-6)
    np.testing.assert_allclose(out(q[:, -9:]), last, atol=1e-6)
    if cut is None:
        np.testing.assert_allclose(last, whole[:, -9:], atol=1e-6)
