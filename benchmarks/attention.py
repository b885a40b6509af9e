"""python -m benchmarks.attention [--seconds=4] [--lengths=256,512,1024,2048] [--out=DIR]

Compares attention by blocks, forward and backward, with jax.nn.dot_product_attention and a
materialised bias, and with the plain attention of this library: time, and temporary memory of the
gradient, which is compiled but not run up to 32,768 tokens.
"""

import argparse
from pathlib import Path

from posenc_jax.runtime import backend

backend.configure(keep_programs=False)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import posenc_jax  # noqa: E402
from benchmarks.results import Result, record  # noqa: E402
from benchmarks.timing import in_turns, machine, ratio, table  # noqa: E402
from posenc_jax.attention import blockwise, plain  # noqa: E402
from posenc_jax.attention.plain import spread  # noqa: E402
from posenc_jax.encoding import DistanceBias, Tokens  # noqa: E402

BATCH, HEADS, SIZE = 2, 4, 64
ENCODINGS = ("nope", "alibi", "t5", "kerple_log", "fire")


def materialised(q, k, v, encoding, q_tokens, k_tokens):
    """Attention by jax.nn: a bias [1, H, T, T], and q, k, v as [B, T, H, K]."""
    bias, positions = None, k_tokens.position
    if isinstance(encoding, DistanceBias):
        bias = spread(encoding.curve(positions), len(positions))[None]
    elif encoding.name != "nope":
        bias = encoding.bias(q_tokens, k_tokens)[None]
    return jax.nn.dot_product_attention(q, k, v, bias=bias, is_causal=True), None


WAYS = {"blockwise": blockwise, "plain": plain, "jax.nn": materialised}


def gradient(way, encoding, length: int):
    """Compile output and all gradients; return it with its arguments. A fixed bias gets none."""
    keys = jax.random.split(jax.random.key(0), 4)
    shape = BATCH, HEADS, length, SIZE
    if way is materialised:
        shape = BATCH, length, HEADS, SIZE
    q, k, v, cotangent = (jax.random.normal(key, shape) for key in keys)
    tokens = Tokens(position=jnp.arange(length), contiguous=True)
    trained, fixed = posenc_jax.partition(encoding)

    def loss(q, k, v, trained, fixed):
        out, _ = way(q, k, v, posenc_jax.combine(trained, fixed), tokens, tokens)
        return jnp.sum(out * cotangent)

    taken = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))
    given = q, k, v, trained, fixed
    return taken.lower(*given).compile(), given


def build(name: str):
    dims = posenc_jax.Dims(HEADS, SIZE, HEADS * SIZE, 128)
    return posenc_jax.build(name, dims, key=jax.random.key(1))


def memory() -> str:
    """Temporary memory of the compiled gradient, which is not run, for 1k to 32k tokens."""
    rows, before = [], 0.0
    for length in (1024, 2048, 4096, 8192, 16_384, 32_768):
        sizes = []
        for way in (blockwise, materialised):
            compiled, _ = gradient(way, build("t5"), length)
            sizes.append(compiled.memory_analysis().temp_size_in_bytes / 2**20)
        growth = f"{sizes[0] / before:.2f}" if before else ""
        rows.append([f"{length:,}", f"{sizes[0]:,.0f}", growth, f"{sizes[1]:,.0f}"])
        before = sizes[0]
    return table(["T", "blockwise MiB", "over half the length", "jax.nn with that bias MiB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4, help="per line")
    parser.add_argument("--lengths", default="256,512,1024,2048")
    parser.add_argument("--out", type=Path, help="the folder that keeps this machine's ratios")
    options = parser.parse_args()
    print(f"{machine()}\nfloat32, B {BATCH}, H {HEADS}, K {SIZE}; forward and backward\n")
    rows, results = [], []
    for length in map(int, options.lengths.split(",")):
        compiled = {
            (name, way): gradient(WAYS[way], build(name), length)
            for name in ENCODINGS
            for way in WAYS
        }
        calls = {
            f"{name} {way}": lambda run=run, given=given: jax.block_until_ready(run(*given))
            for (name, way), (run, given) in compiled.items()
        }
        times = in_turns(calls, options.seconds * len(ENCODINGS))
        for name in ENCODINGS:
            sizes = {
                way: compiled[name, way][0].memory_analysis().temp_size_in_bytes / 2**20
                for way in WAYS
            }
            ours = f"{name} blockwise"
            ranges = {
                "over jax.nn": ratio(times, ours, f"{name} jax.nn"),
                "over plain": ratio(times, ours, f"{name} plain"),
                "time over no bias": ratio(times, "nope blockwise", ours),
            }
            results += [Result(f"{length} {name}", *pair) for pair in ranges.items()]
            mebibytes = [f"{sizes[way]:,.0f}" for way in WAYS]
            rows.append([length, name, *ranges.values(), *mebibytes])
            print(*rows[-1], flush=True)
    head = ["T", "encoding", "faster than jax.nn", "than plain", "time over no bias"]
    print("\n" + table(head + [f"{way} MiB" for way in WAYS], rows))
    if options.out:
        print(f"\nwritten to {record('attention', results, options.out)}")
    print(f"\ntemporary memory of the gradient, t5\n\n{memory()}")


if __name__ == "__main__":
    main()
