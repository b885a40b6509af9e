"""Pictures of curves, and what a trained model shows of its encoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS, L

import posenc_jax
from posenc_jax.evaluation import diagnostics, picture, protocols


def test_pictures_are_drawn_of_one_run_and_of_several(measure, subject, tmp_path):
    every = [protocol.name for protocol in protocols.every()]
    rope = measure(extensions="none,yarn:2,yarn:4", protocols=",".join(every))
    made = picture.draw(rope, tmp_path / "one")
    names = {path.stem for path in made}
    assert names == {*every, "scale"}
    alibi = [
        cell._replace(facts=cell.facts | {"run": "alibi"})
        for cell in measure(subject("alibi"), folder="alibi")
    ]
    made += picture.draw(rope + alibi, tmp_path / "two")
    assert all(path.stat().st_size > 10_000 for path in made)
    later = [cell._replace(facts=cell.facts | {"step": 9}) for cell in rope]
    assert "budget" in {p.stem for p in picture.draw(rope + later, tmp_path / "three")}


def test_every_encoding_has_a_look_of_its_own():
    looks = [picture.look_of(name) for name in posenc_jax.schemes.names()]
    assert len({colour for colour, _ in looks}) == len({mark for _, mark in looks}) == len(looks)
    assert picture.look_of("new") == picture.look_of("new") not in looks


@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "sinusoidal"])
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
    assert np.all(found.entropy <= diagnostics.uniform_entropy(2 * L) + 1e-5)


def test_the_spectrum_shows_what_an_extension_did():
    rope = posenc_jax.build("rope", DIMS)
    waves, turns = diagnostics.spectrum(rope)
    longer, _ = diagnostics.spectrum(posenc_jax.extend("pi", rope, 4.0))
    np.testing.assert_allclose(longer, 4 * waves, rtol=1e-6)
    np.testing.assert_allclose(turns, posenc_jax.extensions.turns(rope).reshape(1, -1), rtol=1e-6)
