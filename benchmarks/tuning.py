"""python -m benchmarks.tuning [--seconds=150] [--rows=1] [--out=DIR]

Compares a step that trains low-rank parts (rank 8, the rest in bfloat16) with one that trains all
weights, at the shape of SmolLM2-135M in bfloat16 on rows of 512 tokens: speeds in turns, and the
memory of the compiled programs, arguments included.
"""

import argparse
from pathlib import Path
from types import SimpleNamespace

from posenc_jax.runtime import backend

backend.configure(keep_programs=False)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.results import Result, record  # noqa: E402
from benchmarks.timing import in_turns, machine, ratio  # noqa: E402
from configs import base  # noqa: E402
from posenc_jax.config import load, trained  # noqa: E402
from posenc_jax.data.batches import Batch  # noqa: E402
from posenc_jax.runs import parameters  # noqa: E402
from posenc_jax.runtime import devices  # noqa: E402
from posenc_jax.training import train_step  # noqa: E402
from posenc_jax.training.optimizer import make  # noqa: E402

SHAPE = dict(layers=30, width=576, heads=9, kv_heads=3, mlp_width=1536, vocab=49_152)
SHAPE |= dict(activation="swiglu", dtype="bfloat16")
LENGTH = 512


def step_of(lora: int | None, rows: int):
    """A call that runs one step and waits for it, and the bytes of its program."""
    config = base.get_config()
    config.encoding.name = "rope"
    config.update(train_length=LENGTH, batch_size=rows)
    config.model.update(SHAPE | {"lora": lora})
    config = load(config)
    optimizer, mesh = make(config), devices.make_mesh()
    own, frozen = trained.split(parameters.make(config).params(), config)
    frozen = {n: a.astype(jnp.bfloat16) if a.ndim > 1 else a for n, a in frozen.items()}
    begin = jax.jit(lambda own: train_step.fresh_state(own, optimizer), donate_argnums=0)
    held = SimpleNamespace(state=begin(own))
    tokens = np.random.default_rng(0).integers(0, SHAPE["vocab"], (rows, LENGTH + 1), np.int32)
    ones = np.ones((rows, LENGTH), np.float32)
    batch = Batch(tokens[:, :-1], tokens[:, 1:], ones, np.zeros_like(tokens[:, 1:]), ones)
    step = train_step.train_step(parameters.blank(config), optimizer, config, mesh)
    program = step.lower(held.state, frozen, batch).compile()

    def call() -> float:
        held.state, measured = program(held.state, frozen, batch)
        return float(measured["loss"])

    memory = program.memory_analysis()
    return call, memory.argument_size_in_bytes + memory.temp_size_in_bytes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the folder that keeps this machine's ratios")
    options = parser.parse_args()
    both = {"lora": step_of(8, options.rows), "all": step_of(None, options.rows)}
    times = in_turns({name: call for name, (call, _) in both.items()}, options.seconds)
    speed = ratio(times, "lora", "all")
    print(f"{machine()}\nlow-rank parts are {speed} times as fast")
    print(", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, (_, size) in both.items()))
    if options.out:
        case = f"SmolLM2-135M, {options.rows} x {LENGTH}"
        record("tuning", [Result(case, "over all weights", speed)], options.out)


if __name__ == "__main__":
    main()
