"""Which tokens are read, and what a row of a curve says of them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS, VOCAB, L

import posenc_jax
from posenc_jax.evaluation import losses, picture, records, sweep, windows
from posenc_jax.exits import DataError


def split(lengths=(70, 20, 200, 65, 64)):
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(0).integers(0, VOCAB, starts[-1])
    return SimpleNamespace(
        tokens=tokens, starts=starts, bytes_of=None, lengths=np.array(lengths), answers=None
    )


def test_windows_are_of_documents_long_enough_and_never_cross_their_ends():
    source = split()
    chosen = windows.choose(source, 64, documents=10, per_document=10)
    assert list(chosen.document) == [0, 1, 1, 1, 2]  # 70, 200 three times, 65; 64 is one too short
    np.testing.assert_array_equal(chosen.tokens[0], source.tokens[:65])
    np.testing.assert_array_equal(chosen.tokens[2], source.tokens[90 + 64 : 90 + 129])
    few = windows.choose(source, 64, documents=2, per_document=2)
    assert list(few.document) == [0, 1, 1]


def test_every_length_has_the_same_targets_each_once():
    chosen = windows.choose(split(), 64, documents=10, per_document=10)
    targets = chosen.tokens[:, 1:].reshape(-1)
    for length in (8, 16, 32, 64):
        tiled = chosen.tiled(length)
        assert tiled.shape[1] == length + 1
        np.testing.assert_array_equal(tiled[:, 1:].reshape(-1), targets)
    with pytest.raises(DataError, match="length 24 does not divide the longest one, 64"):
        chosen.tiled(24)


def test_the_hash_is_of_the_targets():
    one = windows.choose(split(), 64, documents=10, per_document=10)
    two = windows.choose(split(), 32, documents=10, per_document=10)
    assert one.token_hash == windows.choose(split(), 64, documents=10, per_document=10).token_hash
    assert one.token_hash != two.token_hash


def test_too_few_documents_say_how_far_one_may_go():
    with pytest.raises(DataError, match="1 held-out documents have the 101 .* Up to length 69"):
        windows.choose(split(), 100, documents=10, per_document=1)


@pytest.mark.parametrize("name", ["rope", "alibi", "sinusoidal", "fire"])
def test_losses_are_those_of_a_loop_in_float64_whatever_the_batch(name, make_model):
    model = make_model()
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(1))
    tokens = windows.choose(split(), 64, documents=10, per_document=2).tiled(2 * L)
    expected = np.zeros((len(tokens), 2 * L))
    forward = jax.jit(lambda row: model(row[None], encoding)[0])
    for i, row in enumerate(tokens):
        logits = np.asarray(forward(jnp.asarray(row[:-1])), np.float64)
        top = logits.max(axis=-1)
        total = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
        expected[i] = total - logits[np.arange(2 * L), row[1:]]
    for budget in (1, 3 * 2 * L, 10_000):
        found = losses.make(model, budget)(encoding, tokens)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_a_mean_is_of_tokens_and_its_error_over_documents():
    rng = np.random.default_rng(0)
    nats = rng.gamma(2.0, size=(6, 10))
    document = np.array([0, 0, 0, 1, 2, 2])
    row = records.row(nats, document, size=120, run="r", length=10)
    assert list(row) == records.COLUMNS and row["tokens"] == 60
    np.testing.assert_allclose(row["nll"], nats.mean(), rtol=1e-12)
    np.testing.assert_allclose(row["ppl"], np.exp(nats.mean()), rtol=1e-12)
    np.testing.assert_allclose(row["bpb"], nats.sum() / 120 / np.log(2), rtol=1e-12)
    sums = np.array([nats[document == d].sum() for d in range(3)])
    counts = np.array([30, 10, 20])
    residual = sums - nats.mean() * counts
    expected = np.sqrt(3 / 2 * np.sum(residual**2)) / 60
    np.testing.assert_allclose(row["nll_se"], expected, rtol=1e-12)


def test_a_cell_that_is_not_finite_is_null():
    nats = np.ones((2, 4))
    nats[1, 2] = np.nan
    row = records.row(nats, np.array([0, 1]), size=8)
    assert row["nll"] is None and row["ppl"] is None and row["bpb"] is None and row["tokens"] == 8


def test_methods_take_the_largest_scale_unless_they_say_one():
    rope = posenc_jax.build("rope", DIMS)
    chosen = sweep.methods("none, pi,yarn:4,dynamic_ntk,interpolate", rope, largest=8.0)
    assert [(m.name, m.scale) for m in chosen] == [
        ("none", None),
        ("pi", 8.0),
        ("yarn", 4.0),
        ("dynamic_ntk", None),
    ]
    with pytest.raises(ValueError, match="did you mean 'yarn'?"):
        sweep.methods("yran", rope, 8.0)
    dynamic = chosen[-1]
    for ratio in (4.0, 0.5, 2.0):
        applied = dynamic.applied(rope, rope, ratio)
        expected = posenc_jax.extend("ntk", rope, max(1.0, ratio))
        np.testing.assert_array_equal(applied.inv_freq, expected.inv_freq)


def test_a_fine_tuned_run_is_itself_under_none_and_others_start_without_its_extension():
    plain = posenc_jax.build("rope", DIMS)
    own = posenc_jax.extend("yarn", plain, 4.0)
    none, pi = sweep.methods("none,pi:2", plain, 8.0)
    assert none.applied(plain, own, 4.0) is own
    expected = posenc_jax.extend("pi", plain, 2.0)
    np.testing.assert_array_equal(pi.applied(plain, own, 4.0).inv_freq, expected.inv_freq)


def test_a_picture_is_drawn_of_several_runs(tmp_path):
    rows = [
        {"run": run, "encoding": run, "extension": "none", "scale": None, "train_length": 16}
        | {"protocol": "nonoverlap", "length": length, "ppl": length / 10}
        for run in ("rope", "alibi")
        for length in (16, 32)
    ]
    picture.nonoverlap(rows, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 10_000
