"""python -m benchmarks.memory [--lengths=2048,8192,16384] [--out=DIR]

Compares the memory of the forward passes of benchmarks.real with that of transformers: the most
that a new process holds during its second pass, weights included, less what it held without a
model. Initialisation and compilation are left out, and torch allocates by its own settings. Linux
only.
"""

import argparse
import ctypes
import gc
import multiprocessing
import os
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks import peers, real
from benchmarks.results import Result, record
from benchmarks.timing import Range, machine, table

KIB_PER_MIB = 2**10


def resident(name: str) -> int:
    """MiB in memory now (VmRSS) or at most (VmHWM)."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) // KIB_PER_MIB


def of_a_pass(make: Callable, dtype: str, length: int) -> int:
    """MiB that the weights and one pass take in this process."""
    row = np.random.default_rng(0).integers(0, real.SHAPE["vocab"], (1, length), np.int32)
    make(dtype, row[:, :512])()  # imports, threads and buffers of the libraries
    release()
    before = resident("VmRSS")
    call = make(dtype, row)
    call()
    release()
    call()
    return resident("VmHWM") - before


def release() -> None:
    """Return freed memory to the system, and let VmHWM restart from what is held now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def in_new_process(make: Callable, dtype: str, length: int) -> int:
    if make is real.theirs:
        os.environ["GLIBC_TUNABLES"] = ""  # our settings for memory are not made then
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), import_peers) as pool:
            return pool.submit(of_a_pass, make, dtype, length).result()
    finally:
        os.environ.pop("GLIBC_TUNABLES", None)


def import_peers() -> None:
    peers.install(peers.ROOT / ".venv-bench", peers.ROOT / "benchmarks" / "requirements.txt")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lengths", default="2048,8192,16384")
    parser.add_argument("--out", type=Path, help="the folder that keeps this machine's ratios")
    options = parser.parse_args()
    import_peers()
    print(f"{machine()}\nMiB of a forward pass of one row, weights included\n")
    rows, results = [], []
    for length in map(int, options.lengths.split(",")):
        cells = []
        for dtype in real.TYPES:
            ours, theirs = (in_new_process(f, dtype, length) for f in (real.ours, real.theirs))
            share = ours / theirs
            results.append(
                Result(str(length), f"memory over torch, {dtype}", Range(share, share, share))
            )
            cells += [ours, theirs, f"{share:.2f}"]
        rows.append([f"{length:,}", *cells])
        print(*rows[-1], flush=True)
    head = [f"{who} {dtype}" for dtype in real.TYPES for who in ("ours", "torch", "ratio")]
    print("\n" + table(["tokens", *head], rows))
    if options.out:
        print(f"\nwritten to {record('memory', results, options.out)}")


if __name__ == "__main__":
    main()
