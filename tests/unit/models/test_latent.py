"""Attention to a latent (MLA): gradients, and its cache."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configured import problems_of
from sizes import DIMS, L

import models
import posenc_jax
from configs import mla
from posenc_jax.config import building, load
from posenc_jax.runs.parameters import by_path

SIZES = {"latent_dim": 12, "rotary_dim": 4, "value_dim": 6}
LATENT_DIMS = dataclasses.replace(DIMS, rotary_dim=4)
SIZE = 2 * L + 4
# The second piece of 17 expands the held keys; single tokens attend to the latents.
CUTS = (0, 17, 34, 35, SIZE)


def build(name="rope", **options):
    return posenc_jax.build(name, LATENT_DIMS, key=jax.random.key(5), **options)


@pytest.fixture
def latent_model(make_model):
    return make_model(layers=1, **SIZES)


def test_a_gradient_reaches_every_parameter(latent_model, make_tokens):
    tokens = make_tokens(L, batch=2)

    def loss(model):
        return model.losses(tokens[:, :-1], tokens[:, 1:], build())[0].mean()

    gradient = by_path(jax.jit(jax.grad(loss))(latent_model))
    assert {"blocks.attention.up.kernel", "blocks.attention.latent_norm.scale"} <= {*gradient}
    assert all(np.abs(leaf).max() > 1e-6 for leaf in gradient.values())


@jax.jit
def step(model, tokens, encoding, cache):
    return model.step(tokens, encoding, cache)


def read_by_pieces(model, encoding, tokens, **options):
    cache = models.init_cache(model.config, encoding, len(tokens), SIZE, **options)
    logits = []
    for first, last in itertools.pairwise(CUTS):
        out, cache = step(model, tokens[:, first:last], encoding, cache)
        logits.append(out)
    return jnp.concatenate(logits, axis=1)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "extension"),
    [
        ("rope", "yarn:2+window:size=15"),
        *(
            pytest.param(*pair, marks=SLOW)
            for pair in (
                ("rope", "yarn:2"),
                ("rope", "dca:2"),
                ("rope", "self_extend:2"),
                ("rope", "streaming:first=2:window=9"),
                ("rope", "longrope:2:lambdas=1.5/1.5"),
                ("xpos", "none"),
                ("alibi", "window:size=1"),
                ("t5", "none"),
                ("fox", "none"),
                ("ssmax", "yarn:2"),
                ("nope", "none"),
                ("learned", "interpolate:3"),
            )
        ),
    ],
)
def test_a_row_by_pieces_equals_the_full_pass(name, extension, latent_model, make_tokens, forward):
    encoding = posenc_jax.extend(extension, build(name), 1.0)
    tokens = make_tokens(SIZE, batch=2)
    expected = forward(latent_model, tokens, encoding)
    logits = read_by_pieces(latent_model, encoding, tokens)
    np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-5)
    if models.rotates_once(latent_model.config, encoding):
        logits = read_by_pieces(latent_model, encoding, tokens, rotated=True)
        np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-5)


def test_the_cache_holds_the_latent_and_the_shared_entries_alone(latent_model):
    config = latent_model.config
    cache = models.init_cache(config, build(), 3, 100)
    entries = sum(leaf.size for leaf in jax.tree.leaves(cache.layers))
    assert entries == config.layers * 3 * 100 * (SIZES["latent_dim"] + SIZES["rotary_dim"])


def test_the_recipe_rotates_the_shared_entries_alone():
    config = mla.get_config()
    encoding = building.plain(load(config), jax.random.key(0))
    assert encoding.inv_freq.shape == (config.model.rotary_dim // 2,)
    config.model.rotary_dim = 15
    assert "even number from 2 to rotary_dim = 15" in problems_of(config)[0]
