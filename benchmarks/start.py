"""python -m benchmarks.start [--rounds=3]

Times train.py from the command to the end of three steps, on prepared tokens: without compiled
programs on disk, and with those of an earlier start. Each round runs both in turns.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.peers import ROOT
from benchmarks.timing import machine, table

COMMAND = (sys.executable, "train.py", "--config=configs/rope.py", "--config.wandb.mode=disabled")
FIELDS = ("--config.steps=3", "--config.warmup_steps=1")


def start(folder: str, name: str, **environment: str) -> float:
    begin = time.perf_counter()
    workdir = f"{folder}/{name}-{time.time_ns()}"
    command = [*COMMAND, *FIELDS, f"--workdir={workdir}", f"--config.data.cache={folder}/tokens"]
    mine = os.environ | {"XDG_CACHE_HOME": f"{folder}/cache"} | environment
    subprocess.run(command, cwd=ROOT, env=mine, check=True, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        start(folder, "first")  # prepares the tokens and leaves compiled programs
        cold, warm = [], []
        for _ in range(options.rounds):
            cold.append(start(folder, "cold", JAX_ENABLE_COMPILATION_CACHE="false"))
            warm.append(start(folder, "warm"))
    rows = [
        [name, f"{np.median(taken):.1f}", f"{min(taken):.1f} to {max(taken):.1f}"]
        for name, taken in (("compiles everything", cold), ("finds its programs", warm))
    ]
    print(table(["a start of three steps that", "seconds", "range"], rows))
    print(f"ratio {np.median(np.array(warm) / np.array(cold)):.2f}")


if __name__ == "__main__":
    main()
