"""The runs of the campaign: sweeps trained and evaluated on a GPU that is lent for minutes.

Weights stay on the lent machine. What comes back is an archive a plan with what its runs measured
(configuration, status, metrics, evaluation). The archives committed in `done` are unpacked first,
and their runs are left out.
"""

import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from benchmarks.peers import ROOT
from posenc_jax.runtime.errors import AGAIN, DONE
from study.gpu import dry, small

COMMITTED = Path(__file__).parent / "done"
# In the order of what they settle. `text` reads the weights of `small`, `finetune` of `extend`.
PLANS = ("order", "small", "text", "zoo", "extend", "finetune")
KEPT = ("config.json", "status.json", "metrics.jsonl", "eval")
LEAST = 20.0  # seconds; with less left nothing is begun


def run(plan: str, workdir: Path, out: Path, seconds: float, tiny: bool) -> int:
    """Do what is left of a plan in this time; the exit code of its last command."""
    folder = workdir / plan
    folder.mkdir(parents=True, exist_ok=True)
    for archive in sorted(COMMITTED.glob(f"{plan}-*.tar.xz")):
        with tarfile.open(archive) as runs:
            runs.extractall(folder, filter="data")
    if plan == "text":
        fields = dry.EVALUATION if tiny else small.TEXT
        code = evaluate(workdir / "small", folder, fields, seconds)
    else:
        config = dry.shortened(plan, workdir) if tiny else f"study/gpu/{plan}.py"
        words = [f"--config={config}", f"--workdir={folder}", f"--minutes={seconds / 60:.2f}"]
        code = subprocess.run([sys.executable, "scripts/sweep.py", *words], cwd=ROOT).returncode
    pack(folder, out / f"{plan}.tar.xz")
    return code


def evaluate(runs: Path, folder: Path, fields: dict, seconds: float) -> int:
    """Evaluate copies of runs, whose own evaluation stays that of their sweep."""
    until = time.monotonic() + seconds
    words = [f"--config.{field}={value}" for field, value in fields.items()]
    for run in sorted(path.parent for path in runs.glob("*/checkpoints")):
        copy = folder / run.name
        if (copy / "eval" / "curves.csv").exists():
            continue
        if until - time.monotonic() < LEAST:
            return AGAIN
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("eval"), dirs_exist_ok=True)
        command = [sys.executable, "eval_extrapolation.py", f"--workdir={copy}", *words]
        code = subprocess.run(command, cwd=ROOT).returncode
        if code != DONE:
            return code
    return DONE


def pack(folder: Path, archive: Path) -> None:
    """An archive of what the evaluated runs measured."""
    with tarfile.open(archive, "w:xz") as kept:
        for rows in sorted(folder.glob("*/eval/curves.csv")):
            run = rows.parents[1]
            for name in KEPT:
                kept.add(run / name, f"{run.name}/{name}")
