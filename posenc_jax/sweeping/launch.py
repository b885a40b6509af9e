"""Launch the commands of a sweep as processes on this machine.

Local jobs do not use submitit's LocalExecutor. It starts two more Python processes per command,
outlives the sweep, drops the exit code and cannot pin cores or choose a GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

# Sets the cores and PR_SET_PDEATHSIG, so that a killed sweep leaves no process with a locked
# workdir, then becomes the command. A preexec_fn would fork this process with the threads of jax.
BECOME = """
import ctypes, os, signal, sys
cores, *command = sys.argv[1:]
if cores:
    os.sched_setaffinity(0, map(int, cores.split(",")))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
os.execv(command[0], command)
"""


class LocalTask:
    """A started command."""

    def __init__(self, process: subprocess.Popen, free: list[int], place: int):
        self.process, self.free, self.place = process, free, place

    def poll(self) -> int | None:
        """Return its exit code, which is asked for once; None while it runs."""
        code = self.process.poll()
        if code is not None:
            self.free.append(self.place)
        return code

    def stop(self) -> None:
        """Ask it to save and exit."""
        self.process.terminate()


class Local:
    """Processes on this machine, each with a share of the cores or its own GPU."""

    def __init__(self, workers: int | None = None):
        self.gpus = gpus()
        self.cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
        wanted, places = workers or max(1, len(self.gpus)), len(self.gpus or self.cores)
        self.workers = min(wanted, places or wanted)
        self.free = list(range(self.workers))[::-1]

    def start(self, name: str, command: list[str], log: Path) -> LocalTask:
        place = self.free[-1]
        environment = dict(os.environ)
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[place]
        cores = ",".join(map(str, share(self.cores, place, self.workers)))

        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BECOME, cores, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=0,  # so ^C reaches only the sweep, which asks its jobs to save
            )
        self.free.pop()
        return LocalTask(process, self.free, place)

    def launch(self) -> None:
        """Slurm submits the commands started since the last call, together."""


def share(cores: list[int], place: int, workers: int) -> list[int]:
    """Cores of one worker: neighbours, split evenly."""
    return cores[place * len(cores) // workers : (place + 1) * len(cores) // workers]


def gpus() -> list[str]:
    """GPUs of this process, found without jax, which would take memory on each."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [word for word in chosen.split(",") if word.strip() not in ("", "-1")]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(i) for i in range(len(list(folder.iterdir())))] if folder.is_dir() else []
