"""Time the start of a run to the end of three steps, without and with compiled programs kept."""

import shutil
import statistics
import tempfile
from collections.abc import Callable

from benchmarks.gpu.determinism import run_of
from benchmarks.gpu.plans import Plan


def measurements(plan: Plan) -> dict[str, Callable[[], dict]]:
    return {f"{plan.run_size} rope": lambda: cold_and_warm(plan)}


def cold_and_warm(plan: Plan) -> dict:
    taken: dict[str, list[float]] = {"cold_s": [], "warm_s": []}
    dtype = "float32" if plan.platform == "cpu" else "bfloat16"
    for _ in range(plan.starts):
        with tempfile.TemporaryDirectory() as folder:
            for name in taken:
                taken[name].append(run_of(plan, folder, "rope", dtype, 3))
                shutil.rmtree(f"{folder}/run")
    return {name: statistics.median(seconds) for name, seconds in taken.items()}
