"""Measure training steps in bfloat16: tokens per second and the share of the device's peak.

Beside `125m` and `base` runs a baseline: a decoder of flax.nnx of the same sizes with learned
positions on jax.nn.dot_product_attention.
"""

import functools
import time
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.plans import Plan
from benchmarks.timing import in_turns
from benchmarks.train_step import Textbook, textbook_step
from posenc_jax.config import load
from posenc_jax.data.batches import Batch
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.training import adamw, compiled, report

ROWS = {"tiny": 256, "small": 128, "base": 64, "125m": 32}  # steps that keep a device busy
VOCAB = {"tiny": 256, "small": 256, "base": 4_096, "125m": 50_304}
PEERS = "125m", "base"


def measurements(plan: Plan) -> dict[str, Callable[[], dict]]:
    parts: dict[str, Callable[[], dict]] = {
        "product": functools.partial(product, 512 if plan.platform == "cpu" else 8192)
    }
    for size, name in plan.steps:
        parts[f"{size} {name}"] = functools.partial(step_of, plan, size, name)
    return parts


def product(size: int) -> dict:
    """FLOP/s of the device in a large bfloat16 product of random numbers."""
    a = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    run = jax.jit(lambda a: a @ a)
    seconds = in_turns({"product": lambda: run(a).block_until_ready()}, 1.0)["product"]
    return {"tflops": 2 * size**3 / float(np.median(seconds)) / 1e12}


def configured(plan: Plan, size: str, name: str, length: int | None = None):
    config = import_module(f"configs.{name}").get_config(size)
    config.model.update(vocab=VOCAB[size], dtype="bfloat16")
    config.batch_size = ROWS[size]
    config.update_from_flattened_dict(plan.fields)
    if length:
        config.train_length = length
    if name == "randomized":
        config.encoding.max_position = 8 * config.train_length
    return load(config)


def batch_of(config) -> Batch:
    shape = config.batch_size, config.train_length + 1
    tokens = np.random.default_rng(0).integers(0, config.model.vocab_size, shape, np.int32)
    ones = np.ones((shape[0], shape[1] - 1), np.float32)
    return Batch(tokens[:, :-1], tokens[:, 1:], ones, np.zeros(ones.shape, np.int32), ones)


def compiled_step(config):
    """A call that runs a step and waits for it, and its cost."""
    parts, optimizer = parameters.make(config), adamw.make(config)
    mesh = devices.make_mesh(jax.devices()[:1])
    state = jax.device_put(compiled.fresh_state(parts, optimizer), devices.replicated(mesh))
    held, batch = SimpleNamespace(state=state), jax.device_put(batch_of(config))
    begin = time.perf_counter()
    program = compiled.train_step(parts, optimizer, config, mesh).lower(state, batch).compile()
    costs = {
        "compile_s": time.perf_counter() - begin,
        "temporary_mib": program.memory_analysis().temp_size_in_bytes / 2**20,
        "flops_per_token": parts.model.flops_per_token(config.train_length),
        "parameters": parts.counts()["total"],
    }

    def call() -> float:
        held.state, measured = program(held.state, batch)
        return float(measured["loss"])

    return call, costs


def step_of(plan: Plan, size: str, name: str) -> dict:
    config = configured(plan, size, name)
    call, costs = compiled_step(config)
    calls = {"ours": call}
    if size in PEERS and name == "rope":
        calls["jax.nn"] = peer(config)
    times = in_turns(calls, plan.seconds, least=5)
    tokens = config.batch_size * config.train_length
    speed = tokens / float(np.median(times["ours"]))
    values = {"tokens_per_s": speed, **speed_facts(speed, costs)}
    if "jax.nn" in times:
        values["over_jax_nn"] = float(np.median(times["jax.nn"] / times["ours"]))
    return values | costs | {"loss": call()}


def speed_facts(speed: float, costs: dict) -> dict:
    peak = report.PEAK_FLOPS.get(jax.devices()[0].device_kind)
    return {"mfu": speed * costs["flops_per_token"] / peak if peak else None}


def peer(config):
    """A textbook decoder in bfloat16 on jax.nn's attention as it comes."""
    from flax import nnx

    def attention(q, k, v, **_):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    model = Textbook(
        config.train_length,
        nnx.Rngs(0),
        config.model.width,
        config.model.layers,
        config.model.heads,
        config.model.vocab_size,
        jnp.bfloat16,
        attention,
    )
    batch = batch_of(config)
    return textbook_step(model, jnp.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1))
