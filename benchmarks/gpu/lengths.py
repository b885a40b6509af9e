"""Measure speed and memory of training and reading at growing lengths, with equal tokens."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.plans import Plan
from benchmarks.gpu.steps import compiled_step, configured, speed_facts
from benchmarks.timing import in_turns
from posenc_jax.runs import parameters


def measurements(plan: Plan) -> dict[str, Callable[[], dict]]:
    parts = {}
    for length in plan.lengths:
        for name in plan.length_encodings:
            parts[f"train {name}@{length}"] = functools.partial(trained_at, plan, name, length)
            parts[f"read {name}@{length}"] = functools.partial(read_at, plan, name, length)
    return parts


def trained_at(plan: Plan, name: str, length: int) -> dict:
    config = configured(plan, plan.length_size, name, length)
    config.batch_size = max(1, plan.tokens // length)
    call, costs = compiled_step(config)
    seconds = in_turns({"ours": call}, plan.seconds, least=3)["ours"]
    speed = config.batch_size * length / float(np.median(seconds))
    return {"tokens_per_s": speed, **speed_facts(speed, costs)} | costs


def read_at(plan: Plan, name: str, length: int) -> dict:
    """Compute the loss of every token, as an evaluation does."""
    config = configured(plan, plan.length_size, name, length)
    parts = parameters.make(config)
    rows = max(1, plan.tokens // length)
    tokens = jax.random.randint(jax.random.key(0), (rows, length + 1), 0, config.model.vocab_size)

    @jax.jit
    def read(model, encoding, tokens):
        return model.losses(tokens[:, :-1], tokens[:, 1:], encoding)[0]

    compiled = read.lower(parts.model, parts.encoding, tokens).compile()
    run = lambda: jax.block_until_ready(compiled(parts.model, parts.encoding, tokens))  # noqa: E731
    seconds = in_turns({"ours": run}, plan.seconds, least=3)["ours"]
    return {
        "tokens_per_s": rows * length / float(np.median(seconds)),
        "temporary_mib": compiled.memory_analysis().temp_size_in_bytes / 2**20,
        "finite": bool(jnp.isfinite(run()).all()),
    }
