"""The extension `topk`: attention to the keys of the highest logits, those of equal logits too."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import compiled, content, documents, qkv
from sizes import DIMS, VOCAB, L

import posenc_jax
from posenc_jax import extensions, schemes
from posenc_jax.attention import attend
from posenc_jax.attention.plain import kth_largest
from posenc_jax.evaluation import diagnostics

pytestmark = pytest.mark.sampled

KEY = jax.random.key(1)


def build(name, **options):
    return posenc_jax.build(name, DIMS, key=KEY, **options)


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
