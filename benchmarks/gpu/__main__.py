"""python -m benchmarks.gpu [--plan=short|full|dry] [--out=DIR] [--minutes=9.5] [--again]

Measures this library on a GPU: kernels against plain attention, training steps, length and memory,
seeds in one program, determinism, starts. Every measurement is printed and written to DIR/gpu.jsonl
at once; DIR/gpu.md is made from it at the end. The same command resumes; --again repeats what
failed.

`short` fits into one call of ten minutes, `full` into three; `dry` runs tiny sizes on a CPU. Each
part runs in its own process with a time limit: a failure is kept with its whole error, and the rest
goes on.
"""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

from benchmarks.gpu import report
from benchmarks.gpu.plans import PLANS
from benchmarks.gpu.records import BEGUN, DONE, FAILED, Records

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
TAIL = 4_000  # characters kept of a lost process's output
RESTARTS = 20  # of a part whose process was lost
LEAVE = 5  # seconds of the command's time for the report
PROBE = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind, sep='|')"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--plan", choices=PLANS, default="short")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--minutes", type=float, default=9.5, help="after which this call stops")
    parser.add_argument("--again", action="store_true", help="repeat what failed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    until = time.monotonic() + 60 * options.minutes
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    plan = PLANS[options.plan]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths())}
    if options.plan == "dry":
        environment["JAX_PLATFORMS"] = "cpu"
    records = Records(out / "gpu.jsonl")
    if options.again:
        forget_failures(records)
    device = look(plan.platform, environment)
    if device is None:
        return 1
    records.add("machine/device", DONE, plan=options.plan, **device)
    print("  ".join(f"{name} {value}" for name, value in device.items()), flush=True)
    left = [
        part for part in plan.limits if not run(part, options.plan, records, environment, until)
    ]
    report.write(records, out / "gpu.md")
    failed = [k for k, r in records.ended().items() if r["state"] == FAILED]
    print(
        f"\n{out / 'gpu.md'}: {len(records.ended()) - len(failed)} measured, {len(failed)} failed"
    )
    for key in failed:
        print(f"  failed: {key}")
    if left:
        print(f"not done: {', '.join(left)}; the same command resumes")
        return 75
    return 0


def paths() -> list[str]:
    """PYTHONPATH: this project and its former value."""
    return [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]


def look(wanted: str, environment) -> dict | None:
    """The device, its driver and versions; None where there is none, with a printed reason."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True
    )
    words = done.stdout.strip().split("|")
    if done.returncode or words[0] != wanted:
        seen = words[0] if not done.returncode else done.stderr.strip().splitlines()[-1]
        print(f"error: jax of {sys.executable} finds no {wanted}: {seen}", file=sys.stderr)
        if wanted == "gpu":
            print("GPU=dry make gpu tries all of it on a CPU", file=sys.stderr)
        return None
    versions = {}
    for name in PACKAGES:
        versions[name] = metadata.version(name)
    return {"device": words[1], "driver": driver(), "python": platform.python_version(), **versions}


def driver() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=driver_version,memory.total", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or None


def forget_failures(records: Records) -> None:
    for key, record in records.last().items():
        if record["state"] == FAILED:
            records.add(key, BEGUN)


def run(part: str, plan: str, records: Records, environment, until: float) -> bool:
    """Run a part to its end, restarting lost processes; whether it ended within its time."""
    seconds, before = PLANS[plan].limits[part], len(records.ended())
    limit = time.monotonic() + seconds
    command = [sys.executable, "-m", "benchmarks.gpu.part", part]
    command += [f"--plan={plan}", f"--out={records.path}"]
    for _ in range(RESTARTS):
        now, end = time.monotonic(), min(limit, until - LEAVE)
        if now >= end:
            return False
        with (records.path.parent / f"{part}.log").open("w+") as log:
            with subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
            ) as process:
                try:
                    code = follow(process, end)
                finally:
                    end_all(process)
            log.seek(0)
            output = log.read()[-TAIL:]
        if code == 0:
            return True
        if code is None:
            print(f"{part}: its time is over", flush=True)
            if end == limit and len(records.ended()) == before:  # it would happen again
                for key in records.begun(part):
                    records.add(key, FAILED, error=f"took more than {seconds} s")
            return False
        lost = records.begun(part)
        for key in lost:
            error = f"its process ended with {code}:\n{output}"
            records.add(key, FAILED, error=error)
            print(f"{key}  FAILED  its process ended with {code}", flush=True)
        if not lost:  # it cannot even start
            records.add(f"{part}/start", FAILED, error=f"ended with {code}:\n{output}")
            print(f"{part}  FAILED  cannot start: {output.strip().splitlines()[-1:]}", flush=True)
            return True
    return True


def end_all(process: subprocess.Popen) -> None:
    """End a process and everything it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def follow(process: subprocess.Popen, end: float) -> int | None:
    """Print a process's output; return its exit code, or None where its time was over."""

    def pass_on() -> None:
        for line in process.stdout or ():
            print(line, end="", flush=True)

    reader = threading.Thread(target=pass_on, daemon=True)
    reader.start()
    try:
        code = process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        end_all(process)
        return None
    finally:
        reader.join(5)
    return code


if __name__ == "__main__":
    sys.exit(main())
