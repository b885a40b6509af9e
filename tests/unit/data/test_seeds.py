"""Seeds below 2^63 give different runs; those below 2^32 keep their original streams."""

import hashlib
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from posenc_jax.data import tasks
from posenc_jax.data.batches import Batches
from posenc_jax.runs import parameters

pytestmark = pytest.mark.sampled

FAR = 2**32  # jax.random.key distinguishes this many values


@pytest.mark.parametrize("seed", [0, 1, 2**31, FAR - 1])
def test_seeds_below_2_to_32_keep_their_key(seed):
    key = jax.random.key_data(parameters.key_of(seed))
    np.testing.assert_array_equal(key, jax.random.key_data(jax.random.key(seed)))
    assert parameters.key_of(seed) != parameters.key_of(seed + FAR)


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
