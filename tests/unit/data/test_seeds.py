"""Seeds below 2^63 give different runs; those below 2^32 keep their original streams."""

import hashlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import randomized
from posenc_jax.config import load
from posenc_jax.data import tasks
from posenc_jax.data.batches import Batch, Batches
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.training import train_step
from posenc_jax.training.optimizer import make

pytestmark = pytest.mark.sampled

FAR = 2**32  # jax.random.key distinguishes this many values


def config(seed):
    made = randomized.get_config()
    made.model.update(width=16, heads=2, layers=1, vocab=31)
    made.update(train_length=8, batch_size=4, steps=50, warmup_steps=5, seed=seed)
    made.encoding.max_position = 64
    return load(made)


@pytest.mark.parametrize("seed", [0, 1, 2**31, FAR - 1])
def test_seeds_below_2_to_32_keep_their_key(seed):
    key = jax.random.key_data(parameters.key_of(seed))
    np.testing.assert_array_equal(key, jax.random.key_data(jax.random.key(seed)))


def test_large_seeds_give_different_weights():
    seeds = (5, 5 + FAR, 5 + 2**62)
    small, *others = (parameters.make(config(seed)).params()["model"] for seed in seeds)
    for name in small:
        if "norm" not in name:
            assert all(np.mean(small[name] == large[name]) < 0.01 for large in others), name


@pytest.mark.slow
def test_large_seeds_give_different_draws_in_training():
    """The loss of the same weights and rows differs through the random positions."""
    tokens = np.random.default_rng(0).integers(0, 31, (4, 9)).astype(np.int32)
    ones, zeros = np.ones((4, 8), np.float32), np.zeros((4, 8), np.int32)
    batch = Batch(tokens[:, :-1], tokens[:, 1:], ones, zeros, ones.astype(int))
    parts, optimizer = parameters.make(config(5)), make(config(5))

    def losses(seed):
        step = train_step.train_step(
            parts, optimizer, config(seed), devices.make_mesh(jax.devices()[:1])
        )
        fresh = train_step.fresh_state(parts, optimizer)
        copies = [jax.tree.map(jnp.copy, fresh) | {"step": jnp.int32(i)} for i in range(3)]
        return [float(step(state, batch)[1]["loss"]) for state in copies]

    by_seed = [losses(seed) for seed in (5, 5 + 2 * FAR)]
    assert losses(5) == by_seed[0]
    assert len({loss for each in by_seed for loss in each}) == 6


def test_large_seeds_give_different_row_orders():
    split = SimpleNamespace(tokens=np.arange(1_000), starts=np.array([0, 1_000]), bytes_of=None)

    def inputs(seed):
        rows = Batches(split, length=16, batch_size=8, seed=seed, within_documents=False)
        return rows.batch(0).inputs.tobytes()

    assert len({inputs(seed) for seed in (5, 5 + FAR, 5 + 2 * FAR, 2**63 - 1)}) == 4


def test_large_seeds_give_different_synthetic_documents():
    def texts(seed):
        task = tasks.make("copy", 0, document_length=100)
        return [drawn.text.tobytes() for drawn in task.draw("any", 4, seed)]

    documents = [text for seed in (5, 5 + FAR, 5 + 2 * FAR, 2**63 - 1) for text in texts(seed)]
    assert len(set(documents)) == 16
    digest = hashlib.sha256(b"".join(texts(5))).hexdigest()
    assert digest.startswith("46179018fc2118ad")  # unchanged since before larger seeds
