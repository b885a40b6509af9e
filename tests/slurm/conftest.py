"""A SLURM cluster on this machine, started and stopped by tests.

Needs root, `apt-get install slurm-wlm munge` and no other SLURM on this machine.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=10
MinJobAge=30
SchedulerParameters=batch_sched_delay=1,sched_interval=1
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=2000 State=UNKNOWN
PartitionName=tests Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return the reason that no cluster can start here, or an empty string."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if lacking:
        return f"no {', '.join(lacking)}: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "starting a cluster needs root"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[dict[str, str]]:
    """Start a cluster; yield the environment variables for sbatch and the other commands."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cluster")
    host = os.uname().nodename.partition(".")[0]
    conf = folder / "slurm.conf"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    conf.write_text(CONF.format(host=host, folder=folder, cpus=os.cpu_count()))
    environment = os.environ | {"SLURM_CONF": str(conf), "PATH": _path()}
    started = []

    def start(*command: str) -> None:
        with (folder / f"{Path(command[0]).name}.out").open("w") as output:
            started.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))

    try:
        if not _munge_answers(environment):
            key = Path("/etc/munge/munge.key")
            if not key.exists():
                subprocess.run(["mungekey", "--create"], check=True)
            Path("/run/munge").mkdir(exist_ok=True, mode=0o755)
            start("munged", "--foreground", "--force")
        _until(lambda: _munge_answers(environment), "munge", folder)
        start("slurmctld", "-D", "-f", str(conf))
        start("slurmd", "-D", "-f", str(conf))
        _until(lambda: "idle" in _sinfo(environment), "the node", folder)
        yield environment
    finally:
        subprocess.run(["scancel", "--full", "--user=root"], env=environment, capture_output=True)
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _munge_answers(environment) -> bool:
    done = subprocess.run("munge -n | unmunge", shell=True, env=environment, capture_output=True)
    return done.returncode == 0 and b"Success" in done.stdout


def _sinfo(environment) -> str:
    command = ["sinfo", "-h", "-o", "%t"]
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def _until(ready, service: str, folder: Path) -> None:
    end = time.monotonic() + 60
    while not ready():
        if time.monotonic() > end:
            logs = [path.read_text()[-1500:] for path in folder.glob("*.log")]
            raise RuntimeError(f"{service} did not start:\n" + "\n".join(logs))
        time.sleep(0.3)
