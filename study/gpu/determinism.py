"""Train 20 steps twice, and once stopped and resumed, and compare the digests bit for bit."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import ROOT
from posenc_jax.runtime.errors import AGAIN, DONE

FLAG = "--xla_gpu_deterministic_ops=true"
BESIDE = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # this process has most of the device's memory
SMALLEST = {"model.layers": 1, "model.width": 32, "model.heads": 2, "train_length": 32}


def measurements(dry: bool) -> dict[str, Callable[[], dict]]:
    names = ("rope",) if dry else ("rope", "t5")
    return {name: functools.partial(compare, name, dry) for name in names}


def compare(name: str, dry: bool) -> dict:
    """Whether the digests are equal and, if not, whether XLA's deterministic operations help."""
    equal = digests(name, dry)
    values = {"same": len(equal) == 1}
    if not values["same"]:
        values["same_with_flag"] = len(digests(name, dry, XLA_FLAGS=FLAG)) == 1
    return values


def digests(name: str, dry: bool, **environment: str) -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        for run in ("one", "two"):
            train(folder, run, name, dry, DONE, **environment)
        train(folder, "resumed", name, dry, AGAIN, stop_at=10, **environment)
        train(folder, "resumed", name, dry, DONE, **environment)
        files = [Path(folder, run, "status.json") for run in ("one", "two", "resumed")]
        return {json.loads(file.read_text())["digest"] for file in files}


def train(folder: str, run: str, name: str, dry: bool, code: int, stop_at: int = 0, **environment):
    fields = {"steps": 20, "warmup_steps": 1, "stop_at": stop_at, "wandb.mode": "disabled"}
    fields |= {"data.source": "synthetic", "data.documents": 200, "data.cache": f"{folder}/tokens"}
    fields |= SMALLEST if dry else {"model.dtype": "bfloat16"}
    words = [f"--config=configs/{name}.py:small", f"--workdir={folder}/{run}"]
    done = subprocess.run(
        [sys.executable, "train.py", *words, *(f"--config.{n}={v}" for n, v in fields.items())],
        cwd=ROOT,
        env=os.environ | BESIDE | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != code:
        raise RuntimeError(f"train.py ended with {done.returncode}:\n{done.stdout}{done.stderr}")
