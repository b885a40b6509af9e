"""The SLURM launcher, with submitit: commands as job arrays that requeue themselves.

A job stopped by its time limit, a preemption or a signal saves, exits with 75, and requeues itself
under the same number. The number and the exit code are in files of the run's folder, so a restarted
sweep finds its jobs.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from posenc_jax.runtime.errors import AGAIN, IO, ConfigError, Stop
from posenc_jax.runtime.files import read_json, write_atomically

LOST = -int(signal.SIGKILL)  # code of a job that left the queue without an exit code
ASK_EVERY = 5.0  # seconds between calls of squeue
MOST = 1000  # jobs in the queue at once
STOP = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)  # submitit's near the time limit too


def _executor(folder: Path, resources: Mapping[str, Any], workers: int | None) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ConfigError(
            "--launcher=slurm needs submitit: .venv/bin/pip install -e '.[slurm]'"
        ) from error
    with patch.object(submitit.SlurmExecutor, "affinity", return_value=1):  # it would look for srun
        executor = submitit.AutoExecutor(folder=folder / "slurm", cluster="slurm")
    settings = {"timeout_min": 24 * 60, "name": folder.name} | dict(resources)
    try:
        executor.update_parameters(slurm_array_parallelism=workers or MOST, **settings)
    except (AssertionError, NameError, TypeError, ValueError) as error:
        raise ConfigError(f"slurm resources of the sweep file: {error}") from error
    return executor


def script(folder: Path, resources: Mapping[str, Any], workers: int | None, jobs: int) -> str:
    """The script that so many jobs are submitted with."""
    executor = _executor(folder, resources, workers)._executor
    if jobs > 1:
        executor.parameters["map_count"] = jobs
    return executor._make_submission_file_text(executor._submitit_command_str, "")


class Slurm:
    def __init__(self, folder: Path, resources: Mapping[str, Any], workers: int | None = None):
        if shutil.which("sbatch") is None:
            raise ConfigError("--launcher=slurm needs sbatch, which is not on this machine")
        self.workers = workers or MOST
        self.executor = _executor(folder, resources, workers)
        self.queue = Queue()
        self.new: list[SlurmTask] = []

    def start(self, name: str, command: list[str], log: Path) -> "SlurmTask":
        task = SlurmTask(command, log, self.queue)
        if not task.adopt():
            task.clear()
            self.new.append(task)
        return task

    def launch(self) -> None:
        """Submit the commands started since the last call as one array."""
        new, self.new = self.new, []
        if not new:
            return
        logs, outcomes = ([str(getattr(t, name)) for t in new] for name in ("log", "outcome"))
        try:
            jobs = self.executor.map_array(run_in_job, [t.command for t in new], logs, outcomes)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # such as a limit
            for task in new:
                task.refused(str(error))
            return
        for task, job in zip(new, jobs, strict=True):
            task.submitted_as(job.job_id)


class Queue:
    """Jobs still in the queue of SLURM, with one request for all tasks."""

    def __init__(self):
        self.known: set[str] = set()
        self.asked_at = -ASK_EVERY

    def holds(self, job: str) -> bool:
        if time.monotonic() - self.asked_at >= ASK_EVERY:
            self.refresh()
        return job in self.known

    def refresh(self) -> bool:
        """Update the known jobs (NUMBER_INDEX for arrays); False if SLURM did not answer."""
        command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
        result = subprocess.run(command, capture_output=True, text=True)
        self.asked_at = time.monotonic()
        if result.returncode == 0:
            self.known = set(result.stdout.split())
        return result.returncode == 0


class SlurmTask:
    def __init__(self, command: list[str], log: Path, queue: Queue):
        self.command, self.log, self.queue = command, log, queue
        self.outcome = log.parent / "slurm.outcome"
        self.number = log.parent / "slurm.json"
        self.job: str | None = None
        self.missing: float | None = None  # since when SLURM does not know it
        self.code: int | None = None  # set if SLURM rejected it

    def adopt(self) -> bool:
        """Take over the unfinished job of an earlier sweep for this command; False if none."""
        if self.outcome.exists():
            return False
        saved: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            saved = read_json(self.number)
        if saved.get("command") == self.command:
            if not self.queue.refresh():  # a second job would run it twice
                raise OSError("squeue does not answer, and an earlier job may be in the queue")
            if saved.get("job") in self.queue.known:
                self.job = saved["job"]
        return self.job is not None

    def clear(self) -> None:
        """Remove the files of an earlier job."""
        for path in (self.outcome, self.stop_file):
            path.unlink(missing_ok=True)

    def submitted_as(self, job: str) -> None:
        self.job = job
        self.queue.known.add(job)
        with suppress(Stop):  # full disk; a restarted sweep would then not find this job
            write_atomically(self.number, json.dumps({"job": job, "command": self.command}) + "\n")

    def refused(self, reason: str) -> None:
        """Fail like a command, as SLURM rejected the job."""
        with suppress(OSError), self.log.open("a", encoding="utf-8") as stream:
            stream.write(f"error: the job was not submitted: {reason}\n")
        self.code = IO

    @property
    def stop_file(self) -> Path:
        return Path(f"{self.outcome}.stop")

    def poll(self) -> int | None:
        if self.code is not None:
            return self.code
        if self.outcome.exists():
            return int(self.outcome.read_text(encoding="utf-8"))
        if self.job is None or self.queue.holds(self.job):
            self.missing = None
            return None
        # Over a network the file may appear after the job leaves the queue.
        self.missing = self.missing or time.monotonic()
        return None if time.monotonic() - self.missing < 2 * ASK_EVERY else LOST

    def stop(self) -> None:
        if self.job is None:
            return
        self.stop_file.touch()
        command = ["squeue", "--noheader", f"--jobs={self.job}", "--format=%T"]
        state = subprocess.run(command, capture_output=True, text=True).stdout
        if "RUNNING" in state:
            subprocess.run(["scancel", "--signal=TERM", self.job], capture_output=True)
        else:
            subprocess.run(["scancel", self.job], capture_output=True)
            write_atomically(self.outcome, f"{AGAIN}\n")


def run_in_job(command: Sequence[str], log: str, outcome: str) -> None:
    """Run the command inside a job, then write its exit code or requeue the job."""
    with open(log, "a", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )

    for number in STOP:
        signal.signal(number, lambda number, frame: process.terminate())
    code = process.wait()
    if code == AGAIN and not Path(f"{outcome}.stop").exists():
        if subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]]).returncode == 0:
            time.sleep(600)  # until SLURM ends this run of the job
    write_atomically(Path(outcome), f"{code}\n")
