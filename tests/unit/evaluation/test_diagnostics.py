"""Numbers of what position does in an encoding and inside a run, by their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS, L

import posenc_jax
from posenc_jax.encoding import Encoding, static
from posenc_jax.evaluation import diagnostics

pytestmark = pytest.mark.sampled


@pytest.fixture
def rope():
    return posenc_jax.build("rope", DIMS)


def test_the_reach_of_rope_is_that_of_its_definition(rope):
    """By the sums of the paper, one after another."""
    distances = np.array([0, 1, 7, 50])
    theta = [10_000 ** (-2 * j / DIMS.head_dim) for j in range(DIMS.head_dim // 2)]
    expected = []
    for d in distances:
        partial = [sum(np.exp(1j * d * t) for t in theta[: n + 1]) for n in range(len(theta))]
        expected.append(np.mean(np.abs(partial)))
    found = diagnostics.score_bound(rope, distances)
    np.testing.assert_allclose(found, np.array(expected) / expected[0], rtol=1e-5)
    assert found[0] == 1


def test_scores_of_equal_vectors_are_those_of_attention(rope):
    """The phase rotates q = k = ones."""
    phase = rope.phase(jnp.arange(9))
    ones = jnp.ones((1, 1, 9, DIMS.head_dim))
    q = posenc_jax.attention.rotate(ones, phase.q_cos, phase.q_sin, phase.layout)
    scores = np.asarray(q[0, 0] @ q[0, 0].T) / DIMS.head_dim
    distances = np.arange(9)[:, None] - np.arange(9)[None, :]
    np.testing.assert_allclose(diagnostics.score_of_equals(rope, distances), scores, atol=1e-5)


def test_biases_and_similarities():
    alibi = posenc_jax.build("alibi", DIMS)
    expected = -np.asarray(alibi.slopes)[:, None] * np.arange(20)
    np.testing.assert_allclose(diagnostics.bias_by_distance(alibi, 20), expected, rtol=1e-6)
    alike = diagnostics.similarity(posenc_jax.build("sinusoidal", DIMS), 30)
    np.testing.assert_allclose(np.diag(alike), 1)
    np.testing.assert_allclose(np.diag(alike, 3), alike[0, 3], atol=1e-5)  # by distance alone


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_the_four_terms_are_the_scores(name, make_model, make_tokens, monkeypatch):
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(0))
    model, tokens = make_model(), np.asarray(make_tokens(12, batch=3))
    spreads = []
    monkeypatch.setattr(diagnostics, "_spread", lambda scores, seen: spreads.append(scores) or seen)
    diagnostics.terms(model, encoding, tokens)
    x = encoding.embed(model.embed(jnp.asarray(tokens)), jnp.arange(12))
    block = jax.tree.map(lambda leaf: leaf[0], model.blocks)
    x = block.attention_norm(x)
    q, k = (
        project(x).reshape(3, 12, -1, DIMS.head_dim).swapaxes(1, 2)
        for project in (block.attention.q, block.attention.k)
    )
    scores = np.asarray(q @ jnp.repeat(k, q.shape[1] // k.shape[1], axis=1).swapaxes(2, 3))
    np.testing.assert_allclose(sum(spreads), scores / DIMS.head_dim**0.5, atol=1e-5)


def test_spread_is_that_among_the_keys_a_query_sees():
    scores = np.random.default_rng(0).normal(size=(2, 3, 5, 5))
    each = [
        [scores[b, h, q, : q + 1].var() for b in range(2) for q in range(1, 5)] for h in range(3)
    ]
    found = diagnostics._spread(scores, np.tril(np.ones((5, 5), bool)))
    np.testing.assert_allclose(found, np.sqrt(np.mean(each, axis=1)))


@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "sinusoidal"])
@pytest.mark.slow
def test_attention_shown_is_the_attention_of_the_model(name, make_model, make_tokens):
    """Weights that are put back to work give the very logits."""
    model = make_model()
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(1))
    tokens = make_tokens(2 * L)
    x = encoding.embed(model.embed(tokens), encoding.positions(2 * L)).reshape(2 * L, -1)
    every = list(diagnostics.attention_weights(model, encoding, tokens))
    for index, weights in enumerate(every):
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)
        block = jax.tree.map(lambda leaf, i=index: leaf[i], model.blocks)
        values = block.attention.v(block.attention_norm(x)).reshape(2 * L, DIMS.heads, -1)
        out = jnp.einsum("hqs,shk->qhk", weights[0], values).reshape(2 * L, -1)
        x = x + block.attention.out(out)
        x = x + block.mlp(block.mlp_norm(x))
    logits = model.norm(x) @ model.embed.embedding[...].T
    np.testing.assert_allclose(logits, model(tokens, encoding)[0], atol=1e-4)
    far = np.tril(np.ones((2 * L, 2 * L)), -L)
    found = diagnostics.attention(model, encoding, np.asarray(tokens), L)
    for index, weights in enumerate(every):
        expected = (np.asarray(weights[0]) * far).sum(-1)
        np.testing.assert_allclose(found.beyond[index], expected, atol=1e-5)
    assert np.all(found.entropy <= np.log(np.arange(1, 2 * L + 1)) + 1e-5)


class Given(Encoding):
    """Weights are softmax(bias), whatever the content: `most` is added on the first key."""

    most: float = static(default=0.0)

    def bias(self, q, k):
        first = (k.position == 0) * self.most
        return jnp.broadcast_to(first, (DIMS.heads, q.position.shape[-1], k.position.shape[-1]))

    def logits(self, scores, bias):
        return jnp.broadcast_to(bias, scores.shape)


@pytest.mark.parametrize("most", [0.0, 100.0])
def test_attention_on_token_0_is_1_where_all_is_there_and_by_position_where_it_is_uniform(
    most, make_model, make_tokens
):
    tokens = np.asarray(make_tokens(2 * L))
    found = diagnostics.attention(make_model(), Given(dims=DIMS, most=most), tokens, L)
    expected = np.ones(2 * L) if most else 1 / np.arange(1, 2 * L + 1)
    np.testing.assert_allclose(found.first, np.broadcast_to(expected, found.first.shape), rtol=1e-5)
    weight = diagnostics.on_first(found.first, L)
    np.testing.assert_allclose(weight, expected[L // 2 : L].mean(), rtol=1e-5)
    words = diagnostics.sink_in_words(weight)
    count = weight.size if most else 0
    assert f"{count} of {weight.size} heads" in words and words.startswith("no ") == (not most)


def test_attention_on_token_0_is_averaged_from_query_33_to_the_trained_length():
    first = np.arange(200.0)[None, None]
    assert diagnostics.on_first(first, 128) == np.arange(32, 128).mean()
    assert diagnostics.on_first(first[..., :100], 128) == np.arange(32, 100).mean()


def test_the_spectrum_shows_what_an_extension_did():
    rope = posenc_jax.build("rope", DIMS)
    waves, turns = diagnostics.spectrum(rope)
    longer, _ = diagnostics.spectrum(posenc_jax.extend("pi", rope, 4.0))
    np.testing.assert_allclose(longer, 4 * waves, rtol=1e-6)
    np.testing.assert_allclose(turns, posenc_jax.extensions.turns(rope).reshape(1, -1), rtol=1e-6)
