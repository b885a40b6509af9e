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


def test_the_bias_of_alibi_is_its_slope_times_the_distance():
    alibi = posenc_jax.build("alibi", DIMS)
    expected = -np.asarray(alibi.slopes)[:, None] * np.arange(20)
    np.testing.assert_allclose(diagnostics.bias_by_distance(alibi, 20), expected, rtol=1e-6)


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
