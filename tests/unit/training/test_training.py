"""Steps, schedules and rates in process; programs/test_train.py runs the program."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from attending import close
from configured import problems_of
from sizes import config_of, rows

import models
from configs import base
from posenc_jax.config import load, schema
from posenc_jax.runs import parameters
from posenc_jax.runs.metrics import Metrics, read_metrics
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime import devices
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.trees import with_leaves
from posenc_jax.training import loop, memory, train_step
from posenc_jax.training.console import Recorder, Report
from posenc_jax.training.optimizer import bias_travel, decays, make, schedule, travel

pytestmark = pytest.mark.sampled


def config(name="rope", **fields):
    sizes = {"train_length": 8, "steps": 50, "warmup_steps": 5}
    most = {"encoding.max_position": 64} if name == "randomized" else {}
    return config_of(name, **sizes | most | fields)


@functools.cache
def compiled_of(fields):
    """Parts, optimizer and step of a configuration, compiled once for all tests."""
    config = schema.from_fields(json.loads(fields))
    parts, optimizer = parameters.make(config), make(config)
    mesh = devices.make_mesh(jax.devices()[:1])
    return parts, optimizer, train_step.train_step(parts, optimizer, config, mesh)


def step_of(config):
    return compiled_of(json.dumps(schema.as_fields(config), sort_keys=True))


def started(parts, optimizer):
    # A step takes the arrays of its state.
    return train_step.fresh_state(jax.tree.map(jnp.copy, parts.params()), optimizer)


def run(config, count=3):
    parts, optimizer, step = step_of(config)
    state, losses = started(parts, optimizer), []
    for i in range(count):
        state, measured = step(state, {}, rows(seed=i))
        losses.append(float(measured["loss"]))
    return state, losses, parts


def test_a_kernel_missing_on_this_platform_is_refused():
    with pytest.raises(ConfigError, match="this process runs on cpu; use auto"):
        parameters.check(config(**{"model.attention": "kernel"}))


def test_a_step_that_no_gpu_holds_is_refused_before_anything_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "room_of_a_gpu", lambda: 2**30)
    memory.refuse_too_large(config())
    monkeypatch.setattr(memory, "room_of_a_gpu", lambda: 2**16)
    monkeypatch.setattr(parameters, "make", None)
    with pytest.raises(ConfigError, match="a step holds in all .* GiB on each GPU, which has"):
        loop.train(config(**{"model.vocab": 256}), tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_the_loss_is_the_weighted_mean_of_nats():
    parts, optimizer, step = step_of(config())
    batch = rows()._replace(weights=np.tile(np.float32([1, 1, 1, 0, 1, 1, 0, 1]), (4, 1)))
    total = jax.jit(lambda: train_step.summed_loss(parts, parts.params(), batch, None, False))()
    logits = np.float64(jax.jit(lambda x: parts.model(x, parts.encoding))(batch.inputs))
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_p, batch.targets[..., None].astype(int), -1)[..., 0]
    np.testing.assert_allclose(total, (expected * batch.weights).sum(), rtol=1e-6)
    _, measured = step(started(parts, optimizer), {}, batch)
    mean = (expected * batch.weights).sum() / batch.weights.sum()
    np.testing.assert_allclose(measured["loss"], mean, rtol=1e-6)
    np.testing.assert_allclose(measured["bpb"], mean / np.log(2), rtol=1e-6)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("t5", "fire")]


@pytest.mark.parametrize("name", ["rope", "learned", "randomized", *SLOW])
def test_a_step_changes_every_trained_array_and_no_fixed_one(name):
    settings = config(name, weight_decay=0.5)
    state, losses, parts = run(settings, count=5)
    assert all(np.isfinite(losses))
    before = parts.params()
    assert set(state["params"]["encoding"]) == set(before["encoding"])
    for group in before:
        for path, leaf in before[group].items():
            assert jnp.any(state["params"][group][path] != leaf), path
    after = parts.replace(state["params"]).encoding
    if name == "rope":
        np.testing.assert_array_equal(after.inv_freq, parts.encoding.inv_freq)
        assert not before["encoding"]


def test_weight_decay_applies_to_kernels_only():
    params = parameters.make(config("learned", **{"model.tied": False})).params()
    decayed = decays(params, models.Transformer)
    assert not any(jax.tree.leaves(decayed["encoding"]))
    assert not decayed["model"]["embed.embedding"]
    names = {name for name, yes in decayed["model"].items() if yes}
    assert names == {name for name in params["model"] if name.endswith("kernel")}
    assert len(names) == 7 and "unembed.kernel" in names


def orthogonalised(matrix):
    """Jordan's five Newton-Schulz steps, as published."""
    x = matrix / np.linalg.norm(matrix)
    x = x.T if x.shape[0] > x.shape[1] else x
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if x.shape == matrix.shape else x.T


def test_muon_orthogonalises_the_matrices_of_each_layer_and_leaves_the_rest_to_adamw():
    fields = {"model.tied": False, "encoding_rate": 3.0, "weight_decay": 0.5}
    muon, adamw = (config("learned", optimizer=name, **fields) for name in ("muon", "adamw"))
    params, optimizers = parameters.make(muon).params(), (make(muon), make(adamw))
    states, momentum = [one.init(params) for one in optimizers], {}
    leaves, structure = jax.tree.flatten(params)
    for count in range(1, 4):
        rng = np.random.default_rng(count)
        drawn = [rng.normal(size=leaf.shape) for leaf in leaves]
        norm = np.sqrt(sum((x**2).sum() for x in drawn))
        gradients = jax.tree.unflatten(structure, [x / norm for x in drawn])  # of the clip
        small = jax.tree.map(np.float32, gradients)
        both = [one.update(small, s, params) for one, s in zip(optimizers, states, strict=True)]
        (ours, theirs), states = zip(*both, strict=True)
        rate = float(schedule(muon)(count - 1))
        for name, g in gradients["model"].items():
            if not (name.startswith("blocks.") and name.endswith(".kernel")):
                np.testing.assert_array_equal(ours["model"][name], theirs["model"][name])
                continue
            momentum[name] = 0.95 * momentum.get(name, 0) + 0.05 * g
            ahead = 0.95 * momentum[name] / (1 - 0.95 ** (count + 1)) + 0.05 * g / (1 - 0.95**count)
            moved = 0.2 * np.sqrt(max(g.shape[1:])) * np.stack(list(map(orthogonalised, ahead)))
            expected = -rate * (moved + 0.5 * np.float64(params["model"][name]))
            np.testing.assert_allclose(ours["model"][name], expected, rtol=2e-4, atol=1e-8)
        np.testing.assert_array_equal(ours["encoding"]["table"], theirs["encoding"]["table"])
    assert len(momentum) == 6


def test_accumulated_pieces_equal_the_whole_batch():
    (whole, losses, _), (accumulated, same, _) = (run(config()), run(config(accumulate=4)))
    np.testing.assert_allclose(losses, same, rtol=1e-5)
    close(whole, accumulated, atol=2e-4)


@pytest.mark.slow
def test_rematerialisation_does_not_change_losses():
    plain, again = run(config())[1], run(config(**{"model.remat": True}))[1]
    np.testing.assert_allclose(plain, again, rtol=1e-6)


@pytest.mark.slow
def test_the_mean_of_gradients_may_be_bfloat16():
    state, losses, _ = run(config(mu_dtype="bfloat16"))
    means = [leaf.dtype for path, leaf in jax.tree.leaves_with_path(state) if "mu" in str(path)]
    assert means and set(means) == {jnp.dtype("bfloat16")}
    np.testing.assert_allclose(losses, run(config())[1], rtol=1e-3)


def test_random_positions_depend_on_seed_and_step_only():
    parts, optimizer, step = step_of(config("randomized", weight_decay=0.5))

    def loss(at_step):
        state = started(parts, optimizer) | {"step": jnp.int32(at_step)}
        return float(step(state, {}, rows())[1]["loss"])

    assert loss(0) == loss(0) != loss(1) == loss(1)


def test_learning_rates_rise_then_fall():
    cosine = schedule(config(steps=100, warmup_steps=10, learning_rate=1.0))
    at = lambda rate, *steps: [rate(step - 1) for step in steps]  # noqa: E731 optax counts from 0
    np.testing.assert_allclose(at(cosine, 1, 5, 10, 55, 100), [0.1, 0.5, 1, 0.55, 0.1], rtol=1e-5)
    linear = schedule(config(steps=100, warmup_steps=10, learning_rate=1.0, schedule="linear"))
    np.testing.assert_allclose(at(linear, 5, 10, 50, 80), [0.5, 1, 1, 1])
    np.testing.assert_allclose(at(linear, 90, 100), [0.55, 0.1], rtol=1e-5)
    for warmup in (0, 1):
        flat = schedule(config(steps=10, warmup_steps=warmup, learning_rate=1.0))
        assert all(rate > 0 for rate in at(flat, *range(1, 11)))  # no step has rate 0


def test_the_logged_rate_is_that_of_the_step(tmp_path):
    settings, path = config(log_every=1), tmp_path / "metrics.jsonl"
    report = Report(Workdir(tmp_path), settings, parameters.make(settings), 0, {})
    with Recorder(report, Metrics(path, 0), None, float, lossless=True) as record:
        for step, loss in enumerate((2.0, 1.5), 1):
            record.record(step, {"loss": loss, "bpb": loss, "grad_norm": 1.0})
            record.flush()
    lines = read_metrics(path)
    assert [(line["step"], line["learning_rate"]) for line in lines] == [(1, 0), (2, 1)]
    assert [line["loss"] for line in lines] == [2.0, 1.5]


def test_a_gradient_is_clipped_to_the_norm():
    chain = make(config(clip=0.5, weight_decay=0.0))
    params = {"model": {"norm.scale": jnp.zeros(4)}, "encoding": {}}
    state = chain.init(params)
    big = {"model": {"norm.scale": jnp.full(4, 100.0)}, "encoding": {}}
    _, state = jax.jit(chain.update)(big, state, params)
    moment = next(
        s.mu for s in jax.tree.leaves(state, is_leaf=lambda s: hasattr(s, "mu")) if hasattr(s, "mu")
    )
    np.testing.assert_allclose(optax.tree.norm(moment), 0.1 * 0.5, rtol=1e-5)


def test_array_names_are_independent_of_flax_wrappers():
    parts = parameters.make(config("t5"))
    params = parts.params()
    assert "blocks.attention.q.kernel" in params["model"]
    assert list(params["encoding"]) == ["table"]
    same = parts.replace(params)
    close(*((each.model, each.encoding) for each in (same, parts)), rtol=0)
    with pytest.raises(ValueError, match="no such arrays: \\['tabel'\\]"):
        with_leaves(parts.encoding, {"tabel": 0})


def test_a_prefix_is_a_token_of_the_vocabulary():
    config = base.get_config()
    config.data.prefix = 256
    with pytest.raises(ConfigError, match="data.prefix = 256 is not a token of the vocabulary"):
        parameters.with_vocab(load(config), 256)
    assert parameters.with_vocab(load(config), 257).model.vocab == 257


# A trained encoding has its own learning rate, sufficient travel and no weight decay


def parts_of(name, sink=False, **fields):
    config = base.get_config()
    trained = {"frequencies": "trained"} if name == "rope" else {}  # none by default
    config.encoding = {"name": name, "sink": sink} | trained
    config.update(fields)
    config.model.update(width=16, heads=2, layers=1, vocab=11)
    run = load(config)
    return run, parameters.make(run)


def moved(name, rate, *, decay=0.1, steps=3):
    """Return the change of each encoding array and of a kernel after a few equal steps."""
    config, parts = parts_of(name, encoding_rate=rate, weight_decay=decay, warmup_steps=1)
    adam, params = make(config), parts.params()
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


WITH_TRAINED = [
    pytest.param(name, marks=[] if name in ("t5", "fire", "rope") else pytest.mark.slow)
    for name in ("t5", "fire", "rope", "kerple_log", "kerple_power", "learned")
]


@pytest.mark.parametrize("name", WITH_TRAINED)
def test_encoding_rate_scales_steps_of_the_encoding_only(name):
    once, kernel = moved(name, 1.0)
    often, same_kernel = moved(name, 8.0)
    np.testing.assert_array_equal(kernel, same_kernel)
    assert once
    close(often, {array: 8 * change for array, change in once.items()}, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("name", WITH_TRAINED)
def test_encodings_have_no_weight_decay(name):
    without, decayed = (moved(name, 4.0, decay=decay)[0] for decay in (0.0, 0.9))
    close(without, decayed, rtol=0)


@pytest.mark.slow
def test_reach_is_the_largest_logit_change_by_adam():
    """Adam moves an entry of T5 by the rate in each step, and the bias by sqrt(K) times that."""
    config, parts = parts_of("t5", encoding_rate=3.0, steps=50, warmup_steps=5, learning_rate=0.01)
    rates = sum(float(schedule(config)(step)) for step in range(50))
    assert travel(config) == pytest.approx(3 * rates, rel=1e-5)
    expected = 3 * rates * np.sqrt(8)
    assert bias_travel(config, parts.encoding) == pytest.approx(expected, rel=1e-5)
    for name in ("rope", "learned"):
        config, parts = parts_of(name)
        assert bias_travel(config, parts.encoding) is None


@pytest.mark.parametrize("name", ["rope", "alibi", "nope", "randomized"])
def test_an_encoding_rate_without_trained_arrays_is_refused(name):
    config = base.get_config()
    config.encoding = {"name": name} | ({"inner": "rope"} if name == "randomized" else {})
    config.encoding_rate = 4.0
    (problem,) = problems_of(config)
    assert "encoding_rate = 4.0 has no effect: encoding" in problem


def test_a_trained_array_outside_the_bias_does_not_move_it():
    config, parts = parts_of("alibi", sink=True)
    assert bias_travel(config, parts.encoding) is None
