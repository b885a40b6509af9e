"""What encodings look like: the numbers behind the pictures, and that the pictures are made."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from posenc_jax.reporting import encodings as pictures
from running import ROOT, finish
from sizes import DIMS

import posenc_jax


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
    found = pictures.score_bound(rope, distances)
    np.testing.assert_allclose(found, np.array(expected) / expected[0], rtol=1e-5)
    assert found[0] == 1


def test_scores_of_equal_vectors_are_those_of_attention(rope):
    """q = k = ones: what the phase makes of them."""
    phase = rope.phase(jnp.arange(9))
    ones = jnp.ones((1, 1, 9, DIMS.head_dim))
    q = posenc_jax.attention.rotate(ones, phase.q_cos, phase.q_sin, phase.layout)
    scores = np.asarray(q[0, 0] @ q[0, 0].T) / DIMS.head_dim
    distances = np.arange(9)[:, None] - np.arange(9)[None, :]
    np.testing.assert_allclose(pictures.score_of_equals(rope, distances), scores, atol=1e-5)


def test_biases_and_similarities():
    alibi = posenc_jax.build("alibi", DIMS)
    expected = -np.asarray(alibi.slopes)[:, None] * np.arange(20)
    np.testing.assert_allclose(pictures.bias_by_head(alibi, 20), expected, rtol=1e-6)
    alike = pictures.similarity(posenc_jax.build("sinusoidal", DIMS), 30)
    np.testing.assert_allclose(np.diag(alike), 1)
    np.testing.assert_allclose(np.diag(alike, 3), alike[0, 3], atol=1e-5)  # by distance alone


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_the_four_terms_are_the_scores(name, make_model, make_tokens, monkeypatch):
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(0))
    model, tokens = make_model(), np.asarray(make_tokens(12, batch=3))
    spreads = []
    monkeypatch.setattr(pictures, "_spread", lambda scores, seen: spreads.append(scores) or seen)
    pictures.terms(model, encoding, tokens)
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
    found = pictures._spread(scores, np.tril(np.ones((5, 5), bool)))
    np.testing.assert_allclose(found, np.sqrt(np.mean(each, axis=1)))


def test_the_program_draws_what_it_says(program, tmp_path):
    run = tmp_path / "run"
    finish(program("train.py", run, config="sinusoidal"))
    command = [sys.executable, "scripts/plot_encodings.py", str(run), f"--out={tmp_path / 'out'}"]
    done = subprocess.run([*command, "--length=16"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "position in the keys" in done.stdout
    made = sorted(path.name for path in (tmp_path / "out").glob("*.png"))
    assert made == sorted(
        ["rope_reach.png", "rope_distances.png", "rope_wavelengths.png", "biases.png"]
        + ["similarity.png", "terms_sinusoidal.png"]
    )
