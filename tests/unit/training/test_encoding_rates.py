"""A trained encoding moves at its own rate, far enough to be heard, and does not decay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configured import run_of

from configs import base
from posenc_jax.config import building
from posenc_jax.runs import parameters
from posenc_jax.training import adamw

pytestmark = pytest.mark.sampled


TRAINED = {"rope": {"frequencies": "trained"}}  # where nothing is by default


def parts_of(name, **fields):
    config = base.get_config()
    config.encoding = {"name": name} | TRAINED.get(name, {})
    config.update(fields)
    config.model.update(width=16, heads=2, layers=1, vocab=11)
    run = run_of(config)
    return run, parameters.make(run)


def moved(name, rate, *, decay=0.1, steps=3):
    """What a few steps of one gradient add to each array of the encoding, and to a kernel."""
    config, parts = parts_of(name, encoding_rate=rate, weight_decay=decay, warmup_steps=1)
    adam, params = adamw.make(config), parts.params()
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
def test_the_encoding_moves_by_its_multiple_of_the_rate_and_nothing_else_does(name):
    once, kernel = moved(name, 1.0)
    often, same_kernel = moved(name, 8.0)
    np.testing.assert_array_equal(kernel, same_kernel)
    assert once
    for array in once:
        np.testing.assert_allclose(often[array], 8 * once[array], rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("name", ["t5", "fire", "rope", *SLOW])
def test_what_places_tokens_does_not_decay(name):
    for one, other in zip(*(moved(name, 4.0, decay=d)[0].items() for d in (0.0, 0.9)), strict=True):
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.slow
def test_reach_is_what_adam_can_add_to_a_logit():
    """Of T5 exactly: every step of Adam moves an entry by the rate, and the bias by sqrt(K)."""
    config, parts = parts_of("t5", encoding_rate=3.0, steps=50, warmup_steps=5, learning_rate=0.01)
    rates = sum(float(adamw.schedule(config)(step)) for step in range(50))
    assert adamw.travel(config) == pytest.approx(3 * rates, rel=1e-5)
    expected = 3 * rates * np.sqrt(8)
    assert adamw.reach(config, parts.encoding) == pytest.approx(expected, rel=1e-5)
    for name in ("rope", "learned"):
        config, parts = parts_of(name)
        assert adamw.reach(config, parts.encoding) is None


@pytest.mark.parametrize("name", ["rope", "alibi", "nope", "randomized"])
def test_a_rate_of_nothing_is_refused(name):
    config = base.get_config()
    config.encoding = {"name": name} | ({"inner": "rope"} if name == "randomized" else {})
    config.encoding_rate = 4.0
    (problem,) = building.mistakes(run_of(config))
    assert "encoding_rate = 4.0 has no effect: encoding" in problem
