"""Compare several seeds trained in one program, by `jax.vmap` of the step, with one by one."""

import dataclasses
import functools
from collections.abc import Callable
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.plans import Plan
from benchmarks.gpu.steps import batch_of, configured
from benchmarks.timing import in_turns
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.training import adamw, compiled


def measurements(plan: Plan) -> dict[str, Callable[[], dict]]:
    return {
        f"{size} x {count}": functools.partial(together, plan, size, count)
        for size, count in plan.seeds
    }


def together(plan: Plan, size: str, count: int) -> dict:
    config = configured(plan, size, "rope")
    optimizer, mesh = adamw.make(config), devices.make_mesh(jax.devices()[:1])
    states = []
    for seed in range(count):
        parts = parameters.make(dataclasses.replace(config, seed=seed))
        states.append(compiled.fresh_state(parts, optimizer))
    # The step takes its arrays from the state, so the parts of any seed serve all of them.
    step = compiled.train_step(parts, optimizer, config, mesh)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    batch = jax.device_put(batch_of(config))
    batches = jax.tree.map(lambda x: jnp.stack([x] * count), batch)
    all_at_once = jax.jit(jax.vmap(step), donate_argnums=0)
    held = SimpleNamespace(one=jax.tree.map(jnp.copy, states[0]), all=stacked)

    def one_by_one():
        for _ in range(count):
            held.one, measured = step(held.one, batch)
            float(measured["loss"])

    def at_once():
        held.all, measured = all_at_once(held.all, batches)
        return np.asarray(measured["loss"])

    first = at_once()
    times = in_turns({"one by one": one_by_one, "at once": at_once}, plan.seconds, least=3)
    ratio = float(np.median(times["one by one"] / times["at once"]))
    return {
        "times_faster": ratio,
        "ms_at_once": 1e3 * float(np.median(times["at once"])),
        "losses_differ": bool(len(set(first.tolist())) == count),
    }
