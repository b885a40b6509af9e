"""The runs of the campaign: sweeps trained and evaluated on a GPU that is lent for minutes.

Weights stay on the lent machine. What comes back is an archive a plan with what its runs measured
(configuration, status, metrics, rows, sums). The archives committed in `done` are unpacked first,
and their runs are left out.
"""

import io
import json
import os
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
# In the order of what they settle. `finetune` reads the weights of `extend`.
PLANS = ("order", "small", "zoo", "extend", "finetune")
KEPT = ("config.json", "metrics.jsonl", "eval/curves.csv", "eval/sums.parquet")
LEAST = 20.0  # seconds; with less left nothing is begun
# Three runs at a time on one GPU: while one compiles or reads, another trains.
SHARED = {"CUDA_VISIBLE_DEVICES": "0,0,0", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}
SWEPT = 2 / 3  # of the time of `small`, whose text is read with the weights of the same lease


def run(plan: str, workdir: Path, out: Path, seconds: float, tiny: bool) -> int:
    """Do what is left of a plan in this time; the largest exit code of its commands."""
    folder = workdir / plan
    folder.mkdir(parents=True, exist_ok=True)
    for archive in sorted(COMMITTED.glob(f"{plan}-*.tar.xz")):
        with tarfile.open(archive) as runs:
            runs.extractall(folder, filter="data")
    until, small_runs = time.monotonic() + seconds, plan == "small"
    minutes = seconds * (SWEPT if small_runs else 1) / 60
    config = dry.shortened(plan, workdir) if tiny else f"study/gpu/{plan}.py"
    words = [f"--config={config}", f"--workdir={folder}", f"--minutes={minutes:.2f}"]
    command = [sys.executable, "scripts/sweep.py", *words]
    code = subprocess.run(command, cwd=ROOT, env=os.environ | SHARED).returncode
    finished = folder
    if small_runs:
        finished = workdir / "text"
        fields = dry.EVALUATION if tiny else small.TEXT
        code = max(code, evaluate(folder, finished, fields, until))
        pack(finished, out / "text.tar.xz", finished)
    pack(folder, out / f"{plan}.tar.xz", finished)
    return code


def evaluate(runs: Path, folder: Path, fields: dict, until: float) -> int:
    """Evaluate copies of finished runs, whose own evaluation stays that of their sweep."""
    words = [f"--config.{field}={value}" for field, value in fields.items()]
    for rows in sorted(runs.glob("*/eval/curves.csv")):
        run = rows.parents[1]
        copy = folder / run.name
        if (copy / "eval" / "curves.csv").exists() or not (run / "checkpoints").exists():
            continue
        if until - time.monotonic() < LEAST:
            return AGAIN
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("eval"), dirs_exist_ok=True)
        command = [sys.executable, "eval_extrapolation.py", f"--workdir={copy}", *words]
        code = subprocess.run(command, cwd=ROOT).returncode
        if code != DONE:
            return code
    return DONE


def pack(folder: Path, archive: Path, finished: Path) -> None:
    """An archive of what the runs measured that are evaluated in `finished`."""
    with tarfile.open(archive, "w:xz") as kept:
        for rows in sorted(finished.glob("*/eval/curves.csv")):
            run = folder / rows.parents[1].name
            status = json.loads((run / "status.json").read_text(encoding="utf-8"))
            if "evaluated" not in status:
                continue
            status.pop("command", None)  # it has paths of the lent machine
            content = json.dumps(status).encode()
            entry = tarfile.TarInfo(f"{run.name}/status.json")
            entry.size = len(content)
            kept.addfile(entry, io.BytesIO(content))
            for name in KEPT:
                kept.add(run / name, f"{run.name}/{name}")
