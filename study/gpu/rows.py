"""One row of a long evaluation: attention of a layer in bfloat16, forward alone, as `auto` computes
it and by blocks. A larger difference than MOST is a failure."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import posenc_jax
from benchmarks.timing import in_turns
from posenc_jax.attention import attend

L, LONG = 8_192, 65_536
METHODS = ("none", "self_extend", "rerope", "dca", "streaming", "lm_infinite")
BIASED = ("t5", "fire", "fox", "relative")  # at 16,384 tokens
MOST = 0.05  # of the largest output; both round to bfloat16


def measurements(dry: bool) -> dict[str, Callable[[], dict]]:
    length, trained, seconds = (256, 32, 0.0) if dry else (LONG, L, 0.5)
    rotary = {f"rope {m}@{length}": ("rope", m, trained, length) for m in METHODS}
    short = length // 4
    biased = {f"{name}@{short}": (name, "none", short // 8, short) for name in BIASED}
    return {k: functools.partial(measure, *v, seconds) for k, v in (rotary | biased).items()}


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
