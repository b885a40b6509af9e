"""Generated tokens are those of full passes; sampling keeps to its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import build
from sizes import VOCAB, L

import models
import posenc_jax
from models import generation


def by_full_passes(model, encoding, row, tokens):
    """Continue a row greedily; tokens after the last one are not seen, so rows keep one shape."""
    call = jax.jit(lambda row, encoding: model(row, encoding))
    length, row = len(row), np.pad(row, (0, tokens))
    for step in range(tokens):
        now = encoding[step] if isinstance(encoding, list) else encoding
        row[length + step] = call(row[None], now)[0, length + step - 1].argmax()
    return row[length:].tolist()


@pytest.fixture(scope="module")
def sharp(make_model):
    """A model whose likeliest token leads clearly, so that rounding changes no choice."""
    model = make_model()
    return jax.tree.map(lambda leaf: 2.0 * leaf, model)


@pytest.mark.sampled
def test_greedy_tokens_are_those_of_full_passes(encoding, drawn, sharp, make_tokens):
    encoding, prompt = drawn(encoding), make_tokens(10, batch=2)
    tokens = min(L + 5, (encoding.reach or 100) - 10)
    out = models.generate(sharp, encoding, prompt, tokens=tokens)
    expected = [by_full_passes(sharp, encoding, row, tokens) for row in prompt]
    assert out.tolist() == expected


def test_rows_of_unequal_lengths_continue_as_each_alone(sharp, make_tokens):
    rope, prompt, lengths = build("rope"), make_tokens(12, batch=3), [4, 12, 7]
    out = models.generate(sharp, rope, prompt, tokens=9, lengths=lengths)
    alone = [
        models.generate(sharp, rope, prompt[row : row + 1, :length], tokens=9)[0].tolist()
        for row, length in enumerate(lengths)
    ]
    assert out.tolist() == alone


def test_one_encoding_per_step_is_a_full_pass_at_each_length(make_model, make_tokens):
    """The semantics `prefix`: all keys are rotated by the base of the current length. A layer's
    input depends on earlier bases, so the model has one layer."""
    model = jax.tree.map(lambda leaf: 2.0 * leaf, make_model(layers=1))
    rope, prompt, tokens = build("rope"), make_tokens(L - 3), L
    scales = [(L - 3 + step) / L for step in range(tokens)]
    encodings = [posenc_jax.extend("dynamic_ntk", rope, max(1.0, scale)) for scale in scales]
    out = models.generate(model, encodings, prompt, tokens=tokens)
    assert out[0].tolist() == by_full_passes(model, encodings, prompt[0], tokens)
    stale = models.generate(model, encodings, prompt, tokens=tokens, rotated=True)
    assert stale.tolist() != out.tolist()


def test_streamed_tokens_are_the_generated_ones(sharp, make_tokens):
    rope, prompt = build("rope"), make_tokens(5)
    options = dict(tokens=11, temperature=0.9, key=jax.random.key(2))
    whole = models.generate(sharp, rope, prompt, **options)
    pieces = list(models.stream(sharp, rope, prompt, **options, each=4))
    assert [piece.shape[1] for piece in pieces] == [4, 4, 3]
    np.testing.assert_array_equal(jnp.concatenate(pieces, axis=1), whole)


def test_a_row_repeats_its_stop_token(sharp, make_tokens):
    rope, prompt = build("rope"), make_tokens(5, batch=2)
    free = np.asarray(models.generate(sharp, rope, prompt, tokens=12))
    stop = int(free[0, 3])
    out = np.asarray(models.generate(sharp, rope, prompt, tokens=12, stop=[stop, VOCAB - 1]))
    for row in range(2):
        ends = np.flatnonzero(np.isin(free[row], [stop, VOCAB - 1]))
        length = ends[0] if len(ends) else 12
        np.testing.assert_array_equal(out[row, : length + 1], free[row, : length + 1])
        assert set(out[row, length + 1 :].tolist()) <= {int(free[row, min(length, 11)])}


@pytest.mark.slow
def test_sampling_keeps_to_the_likeliest_tokens(make_model, make_tokens):
    model, rope, prompt = make_model(), build("rope"), make_tokens(6, batch=1)
    prompts = np.repeat(prompt, 400, axis=0)
    logits = np.asarray(model(prompt, rope)[0, -1], np.float64)
    order = np.argsort(-logits)

    def drawn(**options):
        key = jax.random.key(1)
        return np.asarray(models.generate(model, rope, prompts, tokens=1, key=key, **options))[:, 0]

    assert set(drawn(temperature=2.0, top_k=3)) == set(order[:3].tolist())
    chances = np.exp(logits / 2) / np.exp(logits / 2).sum()
    kept = int(np.searchsorted(np.cumsum(chances[order]), 0.3)) + 1
    assert set(drawn(temperature=2.0, top_p=0.3)) == set(order[:kept].tolist())
    share = np.bincount(drawn(temperature=2.0), minlength=VOCAB) / 400
    np.testing.assert_allclose(share, chances, atol=0.08)
    np.testing.assert_array_equal(drawn(temperature=1e-4), drawn(temperature=3.0, top_k=1))


def test_lengths_of_one_bucket_share_a_program(make_model, make_tokens):
    model, rope = make_model(), build("rope")
    generation._continue.clear_cache()
    for length, tokens in ((5, 7), (30, 20), (17, 31)):
        models.generate(model, rope, make_tokens(length), tokens=tokens)
    assert generation._continue._cache_size() == 1
