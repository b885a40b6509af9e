"""A sweep through a real queue: `make test-slurm`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import ROOT, TINY

from posenc_jax.runtime import errors

pytestmark = pytest.mark.slurm
SWEEP = """
from posenc_jax.sweeping.grid import axis

def get_config():
    return {{
        "grid": axis("recipe", ["configs/rope.py", "configs/alibi.py"]),
        "fields": {fields!r},
        "evaluation": {{"multiples": "1,2", "documents": 4, "extensions": "none"}},
        "slurm": {{"cpus_per_task": 1, "timeout_min": 30}},
    }}
"""


@pytest.fixture
def sweep(cluster, text, tmp_path):
    """Starts the sweep; its runs take some seconds each."""

    def start(steps=3_000):
        fields = TINY | {"data.path": f"{text}/*.txt", "data.cache": f"{text}/cache"}
        fields |= {"steps": steps, "save_every": 100, "log_every": 100, "valid_every": 1_000}
        file = tmp_path / "sweep.py"
        file.write_text(SWEEP.format(fields=fields))
        words = [f"--config={file}", f"--workdir={tmp_path / 'runs'}", "--launcher=slurm"]
        with (tmp_path / "said.txt").open("a") as output:
            return subprocess.Popen(
                [sys.executable, "scripts/sweep.py", *words],
                cwd=ROOT,
                env=cluster,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    return start


def until(happened, what, seconds=120):
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.2)
    return found


def saved(run: Path) -> int:
    try:
        return json.loads((run / "status.json").read_text()).get("saved", 0)
    except (OSError, ValueError):
        return 0


def job_of(run: Path) -> str:
    return json.loads((run / "slurm.json").read_text())["job"]


def facts(cluster, job: str) -> str:
    command = ["scontrol", "show", "job", job]
    return subprocess.run(command, env=cluster, capture_output=True, text=True).stdout


def test_a_job_that_is_killed_is_queued_again_and_the_sweep_ends(sweep, cluster, tmp_path):
    process, runs = sweep(), tmp_path / "runs"
    rope = runs / "rope"
    until(lambda: saved(rope), "a checkpoint of a job")
    job = job_of(rope)
    assert "_" in job, "the two are one array"
    assert job.split("_")[0] == job_of(runs / "alibi").split("_")[0]
    subprocess.run(["scancel", "--signal=TERM", job], env=cluster, check=True)
    until(lambda: "Restarts=1" in facts(cluster, job), "the job queued again")
    at = saved(rope)
    assert 0 < at < 3_000
    assert process.wait(timeout=300) == errors.DONE, (tmp_path / "said.txt").read_text()
    log = (rope / "log.txt").read_text()
    assert f"resuming at step {at:,}" in log
    for name in ("rope", "alibi"):
        status = json.loads((runs / name / "status.json").read_text())
        assert (status["state"], status["step"]) == ("done", 3_000)
        assert (runs / name / "eval" / "curves.csv").exists()
    assert sweep().wait(timeout=60) == errors.DONE
    assert (tmp_path / "said.txt").read_text().count("done already") == 2


def test_a_killed_sweep_finds_its_jobs_again(sweep, cluster, tmp_path):
    process, runs = sweep(12_000), tmp_path / "runs"
    until(lambda: saved(runs / "rope"), "a checkpoint of a job")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    job = job_of(runs / "rope")
    process = sweep(12_000)
    time.sleep(8)
    assert job_of(runs / "rope") == job
    assert process.wait(timeout=300) == errors.DONE, (tmp_path / "said.txt").read_text()
    assert "retrying" not in (tmp_path / "said.txt").read_text()


def test_a_stopped_sweep_has_its_jobs_save_and_leaves_none(sweep, cluster, tmp_path):
    process, runs = sweep(), tmp_path / "runs"
    until(lambda: saved(runs / "rope"), "a checkpoint of a job")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == errors.AGAIN
    command = ["squeue", "--noheader"]
    left = subprocess.run(command, env=cluster, capture_output=True, text=True).stdout
    assert left.strip() == "" or "CG" in left, left
    assert json.loads((runs / "rope" / "status.json").read_text())["state"] == "stopped"
