"""One row of a long evaluation: attention of a layer in bfloat16, forward alone, as `auto` computes
it and by blocks, where a larger difference than MOST is a failure; and the losses of a whole model
of 8B with random weights in bfloat16."""

import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import posenc_jax
from benchmarks import compiled
from benchmarks.timing import in_turns
from posenc_jax.attention import attend
from posenc_jax.evaluation.losses import losses_of
from posenc_jax.runtime.devices import make_mesh

L, LONG = 8_192, 65_536
METHODS = ("none", "self_extend", "rerope", "dca", "streaming", "lm_infinite")
BIASED = ("t5", "fire", "fox", "relative")  # at 16,384 tokens
EIGHT = (("none", 65_536), ("none", 131_072), ("self_extend", 131_072))
MOST = 0.05  # of the largest output; both round to bfloat16


def measurements(dry: bool) -> dict[str, Callable[[], dict]]:
    length, trained, seconds = (256, 32, 0.0) if dry else (LONG, L, 0.5)
    rotary = {f"rope {m}@{length}": ("rope", m, trained, length) for m in METHODS}
    short = length // 4
    biased = {f"{name}@{short}": (name, "none", short // 8, short) for name in BIASED}
    layer = {k: functools.partial(measure, *v, seconds) for k, v in (rotary | biased).items()}
    size, lengths = ("tiny", (("none", 256),)) if dry else ("8b", EIGHT)
    whole = {f"{size} {m}@{n}": functools.partial(of_a_model, size, m, n) for m, n in lengths}
    return layer | whole


def of_a_model(size: str, method: str, length: int) -> dict:
    """Seconds of a row, and memory: of the program, and the most that the device held so far."""
    device = jax.devices()[0]
    config, mesh = compiled.recipe("rope", size, 1, sharding="replicated"), make_mesh([device])

    def drawn(shape, number: int):
        scale, key = 0.02 * (shape.ndim > 1), jax.random.key(number)
        return scale * jax.random.normal(key, shape.shape, shape.dtype) + (shape.ndim == 1)

    leaves, structure = jax.tree.flatten(compiled.weights(config, mesh))
    model = jax.tree.unflatten(structure, [drawn(leaf, i) for i, leaf in enumerate(leaves)])
    encoding = compiled.extended(config, length, method)
    row = jax.random.randint(jax.random.key(0), (1, length + 1), 0, compiled.VOCAB[size])
    program = losses_of.lower(model, encoding, row, length // 4, mesh).compile()
    spent, nats = [], np.nan
    for _ in range(2):  # the first call loads kernels
        began = time.perf_counter()
        nats = float(program(model, encoding, row)[0].mean())
        spent.append(time.perf_counter() - began)
    if not np.isfinite(nats):
        raise AssertionError(f"a loss of {nats} nats")
    most = (device.memory_stats() or {}).get("peak_bytes_in_use", np.nan)
    held = compiled.facts(program).held
    return {"row_s": spent[-1], "nats": nats, "held_gib": held / 2**30, "most_gib": most / 2**30}


def measure(name: str, method: str, trained: int, length: int, seconds: float) -> dict:
    dims = posenc_jax.Dims(9, 64, 576, trained)  # of SmolLM2
    encoding = posenc_jax.build(name, dims, key=jax.random.key(1)).layer(0)
    encoding = posenc_jax.extend(method, encoding, length / trained)
    shape = (1, length, dims.heads, dims.head_dim)
    q, k, v = (
        jax.random.normal(key, shape, jnp.bfloat16)
        for key in jax.random.split(jax.random.key(0), 3)
    )
    x = jax.random.normal(jax.random.key(2), (1, length, dims.width), jnp.bfloat16)

    def call(how: str) -> Callable:
        @jax.jit
        def run(q, k, v, x):
            return attend(q, k, v, encoding, features=encoding.read(x), implementation=how)

        return lambda: run(q, k, v, x).block_until_ready()

    ways = {how: call(how) for how in ("auto", "blockwise")}
    ours, blocks = (np.float64(run()) for run in ways.values())
    difference = float(np.abs(ours - blocks).max() / np.abs(blocks).max())
    if not difference <= MOST:
        raise AssertionError(f"{difference:.3g} from attention by blocks")
    times = in_turns(ways, seconds, least=3)
    found = {f"{how}_ms": 1e3 * float(np.median(taken)) for how, taken in times.items()}
    return found | {"difference": difference}
