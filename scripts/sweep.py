"""python scripts/sweep.py --config=configs/sweeps/zoo.py --workdir=runs/zoo [--workers=N]

Trains and evaluates every job of a grid. Each is an ordinary run in WORKDIR/<name>; what is done
already is not done again, so the same command goes on where it was stopped or killed, and a grid
that grew adds only what is new. A job that fails is tried again, then reported at the end.

  --workers=N              that many at once, each on its share of the cores or on a GPU of its own;
                           default: one per GPU, one where there is none
  --launcher=local         processes of this machine; slurm: jobs of a cluster, as arrays, with the
                           resources that the sweep file names as `slurm` (submitit's parameters)
  --config.FIELD=VALUE     in every run of this sweep, such as --config.steps=2000
  --minutes=N              after so many nothing is started, and what runs saves and ends; exit code
                           75, and the same command goes on: for a machine that is lent for minutes
  --list                   what would be done, and how far it is
"""

import argparse
import importlib.util
import math
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

sys.path.insert(0, str(Path(__file__).parent.parent))

from posenc_jax import errors, terminal  # noqa: E402
from posenc_jax.files import locked  # noqa: E402
from posenc_jax.runs.signals import stop_requests  # noqa: E402
from posenc_jax.runs.workdir import Workdir  # noqa: E402
from posenc_jax.sweeping.jobs import Job, check, jobs_of  # noqa: E402
from posenc_jax.sweeping.launch import Launcher, Local  # noqa: E402
from posenc_jax.sweeping.progress import Table  # noqa: E402
from posenc_jax.sweeping.scheduler import Scheduler  # noqa: E402
from posenc_jax.sweeping.slurm import Slurm  # noqa: E402


def main(argv: list[str]) -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--config", required=True, help="a file of configs/sweeps/")
    parser.add_argument("--workdir", required=True, help="the folder of the sweep")
    parser.add_argument("--launcher", default="local", choices=["local", "slurm"])
    parser.add_argument("--workers", type=int, help="how many runs at once")
    parser.add_argument("--minutes", type=float, help="when to stop")
    parser.add_argument("--list", action="store_true", help="what would be done")
    options, rest = parser.parse_known_args(argv[1:])

    def body() -> int:
        leave_accelerators()
        sweep, workdir = read(options.config), Path(options.workdir)
        jobs = jobs_of(sweep, workdir, fields_of(rest))
        check(jobs)
        if options.list:
            for job in jobs:
                terminal.say(f"{job.name:<40} {job.next() or 'done'}")
            return errors.DONE
        if options.workers is not None and options.workers < 1:
            raise errors.ConfigError(f"--workers must be at least 1; got {options.workers}")
        if options.minutes is not None and not 0 < options.minutes < math.inf:
            raise errors.ConfigError(f"--minutes must be above 0; got {options.minutes}")
        until = math.inf if options.minutes is None else began + 60 * options.minutes
        if options.launcher == "slurm":
            launcher = Slurm(workdir.resolve(), sweep.get("slurm", {}), options.workers)
        else:
            launcher = Local(options.workers)
        return run(jobs, workdir, launcher, until)

    return terminal.code_of(body)


def run(jobs: list[Job], workdir: Path, launcher: Launcher, until: float) -> int:
    Workdir(workdir).create()
    with locked(workdir, "another sweep"), stop_requests() as stopping:
        scheduler, table = Scheduler(jobs, launcher), Table()
        table.say(f"{len(jobs)} runs in {workdir}, {scheduler.launcher.workers} at a time")
        code = scheduler.run(stopping, table, table.say, until=until)
        failed = [progress for progress in scheduler.all if progress.state == "failed"]
        for progress in failed:
            table.say(f"failed: {progress.job.name}: {progress.reason}")
        if code == errors.DONE:
            table.say(f"all {len(jobs)} runs are trained and evaluated")
        return code


def read(path: str) -> dict[str, Any]:
    """What get_config() of a sweep file returns: a recipe, fields of all runs, and the grid."""
    spec = importlib.util.spec_from_file_location("sweep_config", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise errors.ConfigError(f"--config={path}: there is no such sweep file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        made = module.get_config()
    except Exception as error:  # whatever a user's file may do
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
        where = f", line {own[-1]}" if own and not isinstance(error, SyntaxError) else ""
        raise errors.ConfigError(f"--config={path}{where}: {error!r}") from error
    if isinstance(made, ConfigDict):
        raise errors.ConfigError(
            f"--config={path} is the recipe of one run, for train.py; sweep files are in "
            "configs/sweeps/"
        )
    return made


def leave_accelerators() -> None:
    """Cells are judged on the CPU: this process takes no device from those that train."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def fields_of(words: list[str]) -> list[tuple[str, str]]:
    fields = []
    for word in words:
        name, equals, value = word.partition("=")
        if not name.startswith("--config.") or not equals:
            raise errors.ConfigError(f"stray word {word!r}; fields are set by --config.FIELD=VALUE")
        fields.append((name.removeprefix("--config."), value))
    return fields


if __name__ == "__main__":
    sys.exit(main(sys.argv))
