"""Run a sweep from its file, for `scripts/sweep.py` and `scripts/demo.py`."""

import importlib.util
import math
import shlex
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from posenc_jax import errors
from posenc_jax.files import locked
from posenc_jax.runs.signals import stop_requests
from posenc_jax.runs.workdir import Workdir
from posenc_jax.sweeping.choosing import Plan, Scheme, Trial, checked_rates
from posenc_jax.sweeping.jobs import check, jobs_of, refuse_mistakes
from posenc_jax.sweeping.launch import Launcher, Local
from posenc_jax.sweeping.progress import Display
from posenc_jax.sweeping.scheduler import Scheduler
from posenc_jax.sweeping.slurm import Slurm
from posenc_jax.terminal import counted, say


def sweep(
    file: str,
    workdir: Path,
    words: Sequence[str] = (),
    *,
    launcher: str = "local",
    workers: int | None = None,
    minutes: float | None = None,
) -> int:
    """Run the jobs of a sweep file and return the exit code; `words` are --config.FIELD=VALUE."""
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    content = read(file)
    plan = planned(content, workdir, words)
    if workers is not None and workers < 1:
        raise errors.ConfigError(f"--workers must be at least 1; got {workers}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise errors.ConfigError(f"--minutes must be above 0; got {minutes}")
    if launcher == "slurm":
        slurm = Slurm(workdir.resolve(), content.get("slurm", {}), workers)
        return run(plan, slurm, until)
    return run(plan, Local(workers), until)


def table(file: str, workdir: Path, words: Sequence[str] = ()) -> str:
    """The command of every job known now, to paste into a shell."""
    plan = planned(read(file), workdir, words)
    lines = []
    for job in plan.jobs():
        done = job.is_done()
        lines.append(f"# {job.name}: {'done' if done else 'to run'}")
        if not done:
            lines.append(shlex.join(job.command))
    lines += [
        f"# {scheme.name}: {_seeds(scheme)}, once its rates are chosen" for scheme in plan.open()
    ]
    return "\n".join(lines)


def _seeds(scheme: Scheme) -> str:
    return counted(len(scheme.seeds), "seed")


def planned(content: Mapping[str, Any], workdir: Path, words: Sequence[str]) -> Plan:
    """Plan of a sweep file, after all checks that need no run."""
    leave_accelerators()
    grid = jobs_of(content, workdir, fields_of(words))
    if "choose" not in content:
        check(grid)
        return Plan(grid, workdir)
    refuse_mistakes(grid)
    plan = Plan(grid, workdir, checked_rates(content, grid))
    check(plan.jobs())
    return plan


def run(plan: Plan, launcher: Launcher, until: float = math.inf) -> int:
    workdir = plan.workdir
    Workdir(workdir).create()
    with locked(workdir, "another sweep"), stop_requests() as stopping, Display() as display:
        more = plan.more if plan.schemes else None
        scheduler = Scheduler(more() if more else plan.grid, launcher, more=more)
        known = len(scheduler.all)
        say(f"{counted(known, 'run')} in {workdir}, {launcher.workers} at a time{_to_choose(plan)}")
        code = scheduler.run(stopping, display, say, until=until)
    for progress in scheduler.all:
        if progress.state == "failed":
            say(f"failed: {progress.job.name}: {progress.reason}")
    if code != errors.AGAIN:
        for scheme in plan.open():
            hopeless = scheme.hopeless()
            problem = "no rate was finite" if hopeless else "no rates were chosen"
            say(f"{scheme.name}: {problem}, so {_seeds(scheme)} did not run")
            if hopeless and code == errors.DONE:
                code = errors.NOT_FINITE
    if code == errors.DONE:
        evaluated = sum(not isinstance(progress.job, Trial) for progress in scheduler.all)
        of_them = "" if evaluated == len(scheduler.all) else f" {evaluated} of them"
        say(f"done: {counted(len(scheduler.all), 'run')} trained and{of_them} evaluated")
    return code


def _to_choose(plan: Plan) -> str:
    left = len(plan.open())
    return f"; more when the rates of {counted(left, 'scheme')} are chosen" if left else ""


def read(path: str) -> Mapping[str, Any]:
    """Call get_config() of a sweep file, whose keys are in docs/sweeps.md."""
    spec = importlib.util.spec_from_file_location("sweep_config", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise errors.ConfigError(f"--config={path}: there is no such sweep file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        content = module.get_config()
    except Exception as error:  # a user's file may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == spec.origin]
        where = f", line {lines[-1]}" if lines and not isinstance(error, SyntaxError) else ""
        raise errors.ConfigError(f"--config={path}{where}: {error!r}") from error
    if isinstance(content, ConfigDict):
        raise errors.ConfigError(
            f"--config={path} is the recipe of one run, for train.py; sweep files are in "
            "configs/sweeps/"
        )
    return content


def leave_accelerators() -> None:
    """Check jobs on the CPU, so that this process takes no device from training."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def fields_of(words: Sequence[str]) -> list[tuple[str, str]]:
    fields = []
    for word in words:
        name, equals, value = word.partition("=")
        if not name.startswith("--config.") or not equals:
            raise errors.ConfigError(
                f"unknown argument {word!r}; set fields with --config.FIELD=VALUE"
            )
        fields.append((name.removeprefix("--config."), value))
    return fields
