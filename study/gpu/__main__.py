"""python -m study.gpu [--dry] [--out=DIR] [--seconds=570] [--again] [--plans]

The campaign on a lent GPU: what has no record yet, in this time. First it checks and times this
library: training steps, long rows, the kernels of every encoding against plain attention, a run
repeated and resumed. Then it trains and evaluates the plans of campaign.py.

DIR/gpu.jsonl has each measurement at once, DIR/gpu.md the tables, which are printed last, and
DIR/PLAN.tar.xz what a plan's runs measured. What is committed in `done`, beside this file, is left
out: gpu.jsonl, and PLAN-NUMBER.tar.xz. The same command goes on, also in another lease. --again
repeats failures, --plans measures nothing, --dry runs tiny sizes on a CPU.
"""

import argparse
import shutil
import subprocess
import sys
import time
import tomllib
import traceback
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks.peers import ROOT
from benchmarks.timing import table
from posenc_jax.runtime import backend
from posenc_jax.runtime.errors import AGAIN, FAULT, MEANING
from posenc_jax.runtime.errors import DONE as OK
from posenc_jax.runtime.terminal import clock
from study.gpu import campaign, determinism, kernels, rows, steps
from study.gpu.records import BEGUN, DONE, FAILED, Records

# Measurements that the library waits for, before the rest of every part.
FIRST = ("kernels/fox", "kernels/relative", "steps/125m rope, log-sum", "rows/8b", "steps/1b")
RUNS = Path("runs/gpu")
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
PROBE = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind, sep='|')"
# In the order of what they settle.
PARTS = {
    "steps": (steps, "Training steps in bfloat16."),
    "rows": (rows, "Attention of one long row in bfloat16, forward alone; difference: to blocks."),
    "kernels": (kernels, "Attention in bfloat16 against plain attention in float32."),
    "determinism": (
        determinism,
        "The same run twice, and stopped and resumed; same: equal digests.",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    parser.add_argument("--seconds", type=float, default=570, help="after which this call stops")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--plans", action="store_true", help="train and evaluate, measure nothing")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    backend.configure(keep_programs=False)  # compilation is part of the measurement
    facts = machine("cpu" if options.dry else "gpu")
    if facts is None:
        return FAULT
    options.out.mkdir(parents=True, exist_ok=True)
    records = Records(options.out / "gpu.jsonl", campaign.COMMITTED / "gpu.jsonl")
    records.add("machine/facts", DONE, **facts)
    print("  ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    code = OK if options.plans else measured(records, options.dry, until, options.again)
    if code == OK:
        code = trained(options.out, options.dry, until)
    tables = render(records)
    (options.out / "gpu.md").write_text(tables + "\n", encoding="utf-8")
    print(tables)
    failed = [key for key, record in records.by_key.items() if record["state"] == FAILED]
    print(f"{options.out / 'gpu.md'}: {len(failed)} failed {' '.join(failed)}")
    if code == AGAIN:
        print("not done yet; the same command goes on")
    return FAULT if code == OK and failed else code


def machine(wanted: str) -> dict | None:
    """Device, driver and versions; None without the device or with versions that are too old for
    this library, with a printed reason."""
    command = [sys.executable, "-c", PROBE]
    probe = subprocess.run(command, capture_output=True, text=True)
    platform, _, kind = probe.stdout.strip().partition("|")
    if platform != wanted:
        found = platform or probe.stderr.strip().splitlines()[-1]
        print(f"error: jax finds no {wanted}: {found}", file=sys.stderr)
        print("GPU=dry make gpu runs tiny sizes on a CPU", file=sys.stderr)
        return None
    versions = {name: metadata.version(name) for name in PACKAGES}
    if older := [text for text in requirements() if not met(Requirement(text), versions)]:
        print(f"error: pyproject.toml needs {', '.join(older)}; have {versions}", file=sys.stderr)
        return None
    tool, driver = shutil.which("nvidia-smi"), ""
    if tool:
        query = [tool, "--query-gpu=driver_version,memory.total", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    return {"device": kind, "driver": driver} | versions


def requirements() -> list[str]:
    """What this library needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["lab"]]


def met(wanted: Requirement, versions: dict[str, str]) -> bool:
    return wanted.name not in versions or wanted.specifier.contains(versions[wanted.name])


def measured(records: Records, dry: bool, until: float, again: bool) -> int:
    """Take the missing measurements. This process then has the device's memory, so that plans wait
    for the next call."""
    every = {
        f"{part}/{name}": call
        for part, (module, _) in PARTS.items()
        for name, call in module.measurements(dry).items()
    }
    kept = (DONE,) if again else (DONE, FAILED)
    left = [key for key in every if records.by_key.get(key, {}).get("state") not in kept]
    left.sort(key=urgency)
    began = time.monotonic()
    for number, key in enumerate(left):
        spent = time.monotonic() - began
        if time.monotonic() > until:
            break
        rest = f", {clock(spent / number * (len(left) - number))} left" if number else ""
        records.add(key, BEGUN)
        try:
            values = every[key]()
        except Exception:
            records.add(key, FAILED, error=traceback.format_exc())
        else:
            records.add(key, DONE, **values)
        print(f"[{number + 1}/{len(left)}{rest}] {key}  {shown(records.by_key[key])}", flush=True)
    return AGAIN if left else OK


def urgency(key: str) -> list[bool]:
    return [not key.startswith(first) for first in FIRST]


def trained(out: Path, dry: bool, until: float) -> int:
    """Train and evaluate what is left of the plans; a plan that fails does not hold up the next."""
    codes = [OK]
    for plan in campaign.PLANS:
        seconds = until - time.monotonic()
        if seconds < campaign.LEAST:
            return AGAIN
        workdir = out / "runs" if dry else RUNS
        codes.append(campaign.run(plan, workdir.resolve(), out.resolve(), seconds, dry))
        print(f"{plan}: {MEANING.get(codes[-1], codes[-1])}", flush=True)
        if codes[-1] == AGAIN:
            return AGAIN
    return max(codes)


def shown(record: dict) -> str:
    if record["state"] == FAILED:
        return f"FAILED  {record['error'].strip().splitlines()[-1]}"
    return "  ".join(f"{name} {text(value)}" for name, value in record.items() if name != "state")


def text(value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else str(value).replace("\n", " ").replace("|", "/")[:120]


def render(records: Records) -> str:
    """Tables of all measurements, as Markdown."""
    facts = records.by_key["machine/facts"]
    lines = [", ".join(f"{name} {value}" for name, value in facts.items() if name != "state")]
    for part, (_, caption) in PARTS.items():
        named = {k.partition("/")[2]: r for k, r in records.by_key.items() if k.startswith(part)}
        done = {name: record for name, record in named.items() if record["state"] == DONE}
        columns = list(dict.fromkeys(c for r in done.values() for c in r if c != "state"))
        rows = [[name, *(text(r.get(c)) for c in columns)] for name, r in done.items()]
        lines += ["", f"### {caption}", "", table(["", *columns], rows)]
        failed = {name: r for name, r in named.items() if r["state"] == FAILED}
        lines += [f"\n**{name}**: {shown(record)}" for name, record in failed.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
