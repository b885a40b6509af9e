"""Training steps in bfloat16: tokens per second, the share of the device's peak (MFU), and memory
beside what scripts/check_config.py prints."""

import dataclasses
import functools
import time
from collections.abc import Callable
from unittest import mock

import jax
import numpy as np

from benchmarks import compiled
from benchmarks.timing import in_turns
from models import likelihoods
from posenc_jax.data.batches import Batch
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.training import memory, train_step
from posenc_jax.training.console import PEAK_FLOPS
from posenc_jax.training.optimizer import make

ROWS = {"tiny": 256, "small": 128, "base": 64, "125m": 32, "1b": 8}  # keep a device busy
STEPS = (
    *((size, "rope") for size in ("1b", "125m", "base", "small", "tiny")),
    *(("125m", name) for name in ("fox", "relative", "retention", "fire", "t5", "alibi")),
)


def measurements(dry: bool) -> dict[str, Callable[[], dict]]:
    product_size, steps = (512, (("tiny", "rope"),)) if dry else (8192, STEPS)
    found = {
        f"{size} {name}": functools.partial(step, size, name, 2 if dry else ROWS[size])
        for size, name in steps
    }
    size = "tiny" if dry else "125m"
    whole = found[f"{size} rope"]
    # The step as it is, and with a change for a GPU taken back.
    changes = {
        "log-sum in two passes": functools.partial(in_two_passes, whole),
        "log-sum in one pass": whole,
        "layers in a loop": functools.partial(whole, scan=True),
        "logits in pieces of 64 MiB": functools.partial(in_pieces, whole),
    }
    changed = {f"{size} rope, {what}": call for what, call in changes.items()}
    large = steps[0][0]
    again = {f"{large} rope, remat": functools.partial(found[f"{large} rope"], remat=True)}
    return {"product": functools.partial(product, product_size)} | changed | found | again


def in_pieces(call: Callable[[], dict]) -> dict:
    with mock.patch.dict(likelihoods.LOGITS, gpu=likelihoods.LOGITS["cpu"]):
        return call()


def in_two_passes(call: Callable[[], dict]) -> dict:
    two = functools.partial(jax.nn.logsumexp, axis=-1)
    with mock.patch.object(likelihoods, "logsum_of", two):
        return call()


def product(size: int) -> dict:
    """Rate of a large product of random numbers in bfloat16."""
    a = jax.random.normal(jax.random.key(0), (size, size), "bfloat16")
    run = jax.jit(lambda a: a @ a)
    seconds = in_turns({"product": lambda: run(a).block_until_ready()}, 1.0)["product"]
    return {"tflops": 2 * size**3 / float(np.median(seconds)) / 1e12}


def step(size: str, name: str, rows: int, scan: bool | None = None, remat: bool = False) -> dict:
    config = compiled.recipe(name, size, rows, remat=remat, sharding="replicated")
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, scan=scan))
    parts, optimizer = parameters.make(config), make(config)
    mesh = devices.make_mesh(jax.devices()[:1])
    state = jax.device_put(
        train_step.fresh_state(parts.params(), optimizer), devices.replicated(mesh)
    )
    batch = jax.device_put(random_batch(rows, config.train_length, compiled.VOCAB[size]))
    began = time.perf_counter()
    stepped = train_step.train_step(parts, optimizer, config, mesh)
    program = stepped.lower(state, {}, batch).compile()
    compile_seconds = time.perf_counter() - began

    def call() -> float:
        nonlocal state
        state, measured = program(state, {}, batch)
        return float(measured["loss"])

    seconds = float(np.median(in_turns({"ours": call}, 2.0, least=5)["ours"]))
    speed, peak = rows * config.train_length / seconds, PEAK_FLOPS.get(jax.devices()[0].device_kind)
    flops = parts.model.flops_per_token(config.train_length)
    return {
        "tokens_per_s": speed,
        "mfu": speed * flops / peak if peak else None,
        "compile_s": compile_seconds,
        "temporary_mib": program.memory_analysis().temp_size_in_bytes / 2**20,
        "held_gib": compiled.facts(program).held / 2**30,
        "printed_gib": memory.of_a_step(config, 1)["in all"] / 2**30,
        "parameters": parts.counts()["total"],
        "loss": call(),
    }


def random_batch(rows: int, length: int, vocab: int) -> Batch:
    tokens = np.random.default_rng(0).integers(0, vocab, (rows, length + 1), np.int32)
    ones = np.ones((rows, length), np.float32)
    return Batch(tokens[:, :-1], tokens[:, 1:], ones, np.zeros(ones.shape, np.int32), ones)
