"""python -m benchmarks.evaluation [--longest=32768]

Measures the cost of evaluation: seconds and memory of a process that reads one long window.
"""

import argparse
import resource
import subprocess
import sys
import time

from posenc_jax.config import load  # noqa: E402
from posenc_jax.runtime import backend

backend.configure(keep_programs=False)

import numpy as np  # noqa: E402

import posenc_jax  # noqa: E402
from benchmarks.timing import machine, table  # noqa: E402
from configs import rope  # noqa: E402
from posenc_jax.evaluation.losses import Reader  # noqa: E402
from posenc_jax.runs import parameters  # noqa: E402

LONG = (1024, 4096, 8192, 32_768, 131_072)


def window(length: int) -> None:
    """Read one window, twice where that is short; seconds of the last read, and peak memory."""
    config = rope.get_config()
    config.model.vocab = 256
    parts = parameters.make(load(config))
    tokens = np.random.default_rng(0).integers(0, 256, length + 1, np.int32)
    reader = Reader(parts.model, tokens, 1)
    encoding = posenc_jax.extend("yarn", parts.encoding, max(1.0, length / 128))
    for _ in range(2 if length <= 32_768 else 1):
        begin = time.perf_counter()
        nats, _ = reader(encoding, np.zeros(1, np.int64), length, length)
        seconds = time.perf_counter() - begin
    assert np.isfinite(nats).all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{seconds:.2f} {peak:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--longest", type=int, default=32_768)
    parser.add_argument("--window", type=int, help="of one process, which this one starts")
    options = parser.parse_args()
    if options.window:
        return window(options.window)
    print(f"{machine()}\n")
    rows = []
    for length in (n for n in LONG if n <= options.longest):
        command = [sys.executable, "-m", "benchmarks.evaluation", f"--window={length}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, peak = map(float, done.stdout.split()[-2:])
        rows.append([f"{length:,}", f"{seconds:.2f}", f"{length / seconds:,.0f}", f"{peak:.2f}"])
    print(table(["one window of", "seconds", "tokens/s", "GiB resident at most"], rows))
    return None


if __name__ == "__main__":
    main()
