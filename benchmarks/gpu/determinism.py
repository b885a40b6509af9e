"""Train 20 steps twice and compare the digests of all numbers, bit for bit."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu.plans import Plan
from benchmarks.peers import ROOT

FLAG = "--xla_gpu_deterministic_ops=true"


def measurements(plan: Plan) -> dict[str, Callable[[], dict]]:
    return {
        f"{name} {dtype}": functools.partial(twice, plan, name, dtype) for name, dtype in plan.runs
    }


def twice(plan: Plan, name: str, dtype: str) -> dict:
    """Run twice and, where digests differ, twice more with XLA's deterministic operations."""
    first, second = (digest(plan, name, dtype) for _ in range(2))
    values = {"same": first == second, "digest": first}
    if first != second and plan.platform == "gpu":
        first, second = (digest(plan, name, dtype, XLA_FLAGS=FLAG) for _ in range(2))
        values["same_with_flag"] = first == second
    return values


def digest(plan: Plan, name: str, dtype: str, **environment: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        run_of(plan, folder, name, dtype, 20, **environment)
        return json.loads((Path(folder) / "run" / "status.json").read_text())["digest"]


def run_of(plan: Plan, folder: str, name: str, dtype: str, steps: int, **environment) -> float:
    """Seconds that train.py took, on synthetic text."""
    fields = {
        "steps": steps,
        "warmup_steps": 1,
        "model.dtype": dtype,
        "data.source": "synthetic",
        "data.documents": 200,
        "data.cache": f"{folder}/tokens",
        "wandb.mode": "disabled",
    } | plan.fields
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "train.py", f"--config=configs/{name}.py:{plan.run_size}"]
        + [f"--workdir={folder}/run"]
        + [f"--config.{field}={value}" for field, value in fields.items()],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": f"{folder}/cache"} | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"train.py ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - begin
