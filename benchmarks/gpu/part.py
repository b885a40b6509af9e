"""python -m benchmarks.gpu.part PART --plan=short --out=FILE

Takes the measurements of one part that the file does not hold yet. A failure is written with its
whole error, and the next one follows.
"""

import argparse
import traceback
from importlib import import_module
from pathlib import Path

from benchmarks.gpu.plans import PLANS
from benchmarks.gpu.records import BEGUN, DONE, FAILED, Records
from posenc_jax import backend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part")
    parser.add_argument("--plan", choices=PLANS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    backend.configure(keep_programs=False)  # compilation is part of the measurement
    plan, records = PLANS[options.plan], Records(options.out)
    module = import_module(f"benchmarks.gpu.{options.part}")
    done = records.ended()
    for name, measure in module.measurements(plan).items():
        key = f"{options.part}/{name}"
        if key in done:
            continue
        records.add(key, BEGUN)
        try:
            values = measure()
        except Exception:
            error = traceback.format_exc()
            records.add(key, FAILED, error=error)
            print(f"{key}  FAILED  {error.strip().splitlines()[-1]}", flush=True)
        else:
            records.add(key, DONE, **values)
            line = "  ".join(f"{name} {show(value)}" for name, value in values.items())
            print(f"{key}  {line}", flush=True)


def show(value) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


if __name__ == "__main__":
    main()
