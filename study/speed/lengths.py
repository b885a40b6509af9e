"""python -m study.speed.lengths [--lengths=128,256,512,1024,2048,4096] [--seconds=20] [--out=DIR]

Measures training at every length with 4,096 tokens a step: tokens per second of every encoding and
of the peers, and the temporary memory of the step. Writes lengths.csv.
"""

import argparse
import csv
from pathlib import Path

from posenc_jax.runtime import backend

backend.configure(keep_programs=False)

import numpy as np  # noqa: E402

from benchmarks import peers  # noqa: E402
from benchmarks.timing import in_turns, machine  # noqa: E402
from benchmarks.train_step import ours, textbook, theirs  # noqa: E402
from posenc_jax import schemes  # noqa: E402

TOKENS = 4096  # per step
PLAIN = "rope, plain attention"
EAGER, COMPILED, FLAX = "x-transformers", "x-transformers, compiled", "flax.nnx textbook"


def measure(length: int, seconds: float) -> list[dict]:
    rows = max(1, TOKENS // length)
    calls, memory = {}, {}
    for name in schemes.names():
        calls[name], memory[name] = ours(name, length, rows)
    calls[PLAIN], memory[PLAIN] = ours("rope", length, rows, "plain")
    calls[EAGER] = theirs("rope", length, rows, "eager")
    calls[COMPILED] = theirs("rope", length, rows, "compiled")
    calls[FLAX] = textbook(length, rows)
    times = in_turns(calls, seconds, least=5)
    lines = []
    for name, taken in times.items():
        low, middle, high = np.percentile(rows * length / taken, [25, 50, 75])
        temporary = f"{memory[name] / 2**20:.1f}" if name in memory else ""
        print(f"{length:5} {name:26} {middle:9,.0f} tokens/s  {temporary:>8} MiB", flush=True)
        lines.append(
            {
                "length": length,
                "who": name,
                "tokens_per_s": round(middle),
                "low": round(low),
                "high": round(high),
                "temporary_mib": temporary,
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lengths", default="128,256,512,1024,2048,4096")
    parser.add_argument("--seconds", type=float, default=20, help="per length")
    parser.add_argument("--out", type=Path, default=Path("study/speed"))
    options = parser.parse_args()
    peers.install(peers.ROOT / ".venv-bench", peers.ROOT / "benchmarks" / "requirements.txt")
    print(machine(), flush=True)
    rows = []
    for length in map(int, options.lengths.split(",")):
        rows += measure(length, options.seconds)
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "lengths.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
