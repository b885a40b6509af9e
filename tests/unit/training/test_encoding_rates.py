"""A trained encoding has its own learning rate, sufficient travel and no weight decay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configured import problems_of

from configs import base
from posenc_jax.config import load
from posenc_jax.runs import parameters
from posenc_jax.training import optimizer

pytestmark = pytest.mark.sampled


TRAINED = {"rope": {"frequencies": "trained"}}  # for encodings without trained defaults


def parts_of(name, sink=False, **fields):
    config = base.get_config()
    config.encoding = {"name": name, "sink": sink} | TRAINED.get(name, {})
    config.update(fields)
    config.model.update(width=16, heads=2, layers=1, vocab=11)
    run = load(config)
    return run, parameters.make(run)


def moved(name, rate, *, decay=0.1, steps=3):
    """Return the change of each encoding array and of a kernel after a few equal steps."""
    config, parts = parts_of(name, encoding_rate=rate, weight_decay=decay, warmup_steps=1)
    adam, params = optimizer.make(config), parts.params()
    state, start = adam.init(params), params

    @jax.jit
    def step(params, state):
        updates, state = adam.update(jax.tree.map(jnp.ones_like, params), state, params)
        return jax.tree.map(jnp.add, params, updates), state

    for _ in range(steps):
        params, state = step(params, state)
    kernel = "blocks.attention.q.kernel"
    return (
        {n: params["encoding"][n] - start["encoding"][n] for n in params["encoding"]},
        params["model"][kernel] - start["model"][kernel],
    )


SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in ("kerple_log", "kerple_power", "learned")]


@pytest.mark.parametrize("name", ["t5", "fire", "rope", *SLOW])
def test_encoding_rate_scales_steps_of_the_encoding_only(name):
    once, kernel = moved(name, 1.0)
    often, same_kernel = moved(name, 8.0)
    np.testing.assert_array_equal(kernel, same_kernel)
    assert once
    for array in once:
        np.testing.assert_allclose(often[array], 8 * once[array], rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("name", ["t5", "fire", "rope", *SLOW])
def test_encodings_have_no_weight_decay(name):
    without, decayed = (moved(name, 4.0, decay=decay)[0] for decay in (0.0, 0.9))
    for array in without:
        np.testing.assert_array_equal(without[array], decayed[array])


@pytest.mark.slow
def test_reach_is_the_largest_logit_change_by_adam():
    """Adam moves an entry of T5 by the rate in each step, and the bias by sqrt(K) times that."""
    config, parts = parts_of("t5", encoding_rate=3.0, steps=50, warmup_steps=5, learning_rate=0.01)
    rates = sum(float(optimizer.schedule(config)(step)) for step in range(50))
    assert optimizer.travel(config) == pytest.approx(3 * rates, rel=1e-5)
    expected = 3 * rates * np.sqrt(8)
    assert optimizer.bias_travel(config, parts.encoding) == pytest.approx(expected, rel=1e-5)
    for name in ("rope", "learned"):
        config, parts = parts_of(name)
        assert optimizer.bias_travel(config, parts.encoding) is None


@pytest.mark.parametrize("name", ["rope", "alibi", "nope", "randomized"])
def test_an_encoding_rate_without_trained_arrays_is_refused(name):
    config = base.get_config()
    config.encoding = {"name": name} | ({"inner": "rope"} if name == "randomized" else {})
    config.encoding_rate = 4.0
    (problem,) = problems_of(config)
    assert "encoding_rate = 4.0 has no effect: encoding" in problem


def test_a_trained_array_outside_the_bias_does_not_move_it():
    config, parts = parts_of("alibi", sink=True)
    assert optimizer.bias_travel(config, parts.encoding) is None
