"""Run a sweep: read its file, start, resume and retry its jobs, and draw the live table."""

import dataclasses
import math
import runpy
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime import errors
from posenc_jax.runtime.files import locked
from posenc_jax.runtime.terminal import clock, counted, say, silence, stop_requests
from posenc_jax.sweeping import slurm
from posenc_jax.sweeping.jobs import Job, jobs_of, refuse_mistakes, refuse_other_runs
from posenc_jax.sweeping.launch import Local, LocalTask
from posenc_jax.sweeping.rates import Plan, Scheme, Trial, checked_rates

RETRIES = 2
POLL = 0.2  # seconds between looks at what runs
PAUSE = 5.0  # seconds before a failed command is retried
BUSY_TRIES = 60  # PAUSE apart, while the run of a killed sweep saves and exits
# Exit codes that a retry would repeat.
SAME_AGAIN = (errors.CONFIG, errors.DATA, errors.NOT_FINITE, errors.OTHER_CONFIG)


@dataclasses.dataclass
class Progress:
    """State of a job in this process, beyond its folder."""

    job: Job
    state: str = "waiting"  # waiting, running, stopping, done, failed, stopped
    code: int = errors.DONE
    reason: str = ""
    failures: int = 0
    not_before: float = 0.0
    began: float = 0.0
    log_from: int = 0  # bytes of its log that are from earlier commands
    before: dict = dataclasses.field(default_factory=dict)  # the run's status before the command
    busy: int = 0  # times that another process had locked its folder
    seconds: float = 0.0  # run time of its commands

    def has_saved(self) -> bool:
        """Return True if its last command left a new checkpoint."""
        return self.job.status().get("saved", 0) > self.before.get("saved", 0)


class Scheduler:
    """Runs the jobs of a plan, which may know more of them after each that ends."""

    def __init__(self, plan: Plan, launcher: Local | slurm.Slurm):
        self.plan, self.launcher = plan, launcher
        self.all: list[Progress] = []
        self.running: dict[str, tuple[Progress, LocalTask | slurm.SlurmTask]] = {}
        self._update()

    def _update(self) -> None:
        """Take the jobs that the plan knows now; a full job replaces the trial of its name."""
        known = {progress.job.name: progress for progress in self.all}
        self.all = []
        self.plan.write()
        for job in self.plan.jobs():
            progress = known.get(job.name)
            if progress is None or progress.job != job:
                progress = Progress(job)
            self.all.append(progress)

    def run(
        self, stopping: list[str], show: Callable[["Scheduler"], None], until: float = math.inf
    ) -> int:
        """Run all jobs; return 0, the exit code of the first failed job, or 75 after a stop.

        `stopping` names the source of a stop request; `until` (of `time.monotonic`) adds one.
        """
        stop_sent = False
        while self.running or (self.of_state("waiting") and not stopping):
            if time.monotonic() >= until and not stopping:
                stopping.append("--minutes")
            if stopping and not stop_sent:
                stop_sent = True
                for progress, _ in self.running.values():
                    progress.state = "stopping"
                show(self)
                say(f"stopping by {stopping[0]}: running jobs save first")
                for _, task in self.running.values():
                    task.stop()
            if not stopping:
                self._start()
                self.launcher.launch()
            for name, (progress, task) in list(self.running.items()):
                code = task.poll()
                if code is not None:
                    del self.running[name]
                    self._ended(progress, code, bool(stopping))
            show(self)
            time.sleep(POLL)
        if stopping:
            say("stopped; the same command resumes")
            return errors.AGAIN
        failed = self.of_state("failed")
        return (failed[0].code or errors.FAULT) if failed else errors.DONE

    def of_state(self, *states: str) -> list[Progress]:
        return [progress for progress in self.all if progress.state in states]

    def _start(self) -> None:
        while len(self.running) < self.launcher.workers:
            left = self.of_state("waiting", "running")
            ahead = {progress.job.folder.resolve() for progress in left}
            ready = [
                progress
                for progress in self.of_state("waiting")
                # A run that is measured may still be ending as a trial.
                if progress.not_before <= time.monotonic() and progress.job.name not in self.running
                if ahead.isdisjoint(progress.job.sources)
            ]
            if not ready:
                return
            progress = min(ready, key=lambda one: one.not_before)  # failed ones last
            try:
                self._begin(progress)
            except OSError as error:  # such as a full disk; other jobs may still start
                self._failed(progress, errors.IO, f"could not be started: {error}")

    def _begin(self, progress: Progress) -> None:
        job = progress.job
        if job.is_done():
            self._finish(progress, "done", "done already")
            return
        job.folder.mkdir(parents=True, exist_ok=True)
        progress.before = job.status()
        progress.log_from = job.log.stat().st_size if job.log.exists() else 0
        task = self.launcher.start(job.name, job.command, job.log)
        progress.state, progress.began = "running", time.monotonic()
        self.running[job.name] = progress, task

    def _ended(self, progress: Progress, code: int, stopping: bool) -> None:
        job = progress.job
        progress.seconds += time.monotonic() - progress.began
        try:
            done = code in job.ends_well and job.is_done()
        except OSError as error:
            self._failed(progress, errors.IO, f"its folder cannot be read: {error}")
            return
        if done:
            self._finish(progress, "done", "done")
        elif stopping:
            progress.state = "stopped"
        elif code == errors.AGAIN and progress.has_saved():
            progress.state, progress.not_before = "waiting", 0.0
        elif code == errors.BUSY and progress.busy < BUSY_TRIES:
            progress.busy += 1
            if progress.busy == 1:
                say(f"{job.name}: waiting for another process, which has locked its folder")
            self._pause(progress)
        else:
            self._failed(progress, code, reason_of(progress, code))

    def _failed(self, progress: Progress, code: int, reason: str) -> None:
        progress.failures += 1
        progress.code, progress.reason = code, reason
        if code in SAME_AGAIN or progress.failures > RETRIES:
            self._finish(progress, "failed", f"FAILED, {reason}")
        else:
            say(f"{progress.job.name}: {reason}; retrying")
            self._pause(progress)

    def _pause(self, progress: Progress) -> None:
        progress.state, progress.not_before = "waiting", time.monotonic() + PAUSE

    def _finish(self, progress: Progress, state: str, word: str) -> None:
        progress.state = state
        metrics = progress.job.last_metrics()
        numbers = f", loss {metrics['loss']:.4f}" if metrics.get("loss") is not None else ""
        took = f", {progress.seconds:,.0f} s" if progress.seconds else ""
        ended = len(self.of_state("done", "failed"))
        say(f"[{ended}/{len(self.all)}] {progress.job.name}: {word}{numbers}{took}")
        self._update()


def reason_of(progress: Progress, code: int) -> str:
    """Reason why a command ended, from status.json or its log."""
    job = progress.job
    if code < 0:
        name = signal.Signals(-code).name
        return f"was killed by {name}; its output: {job.log}"
    if code == errors.DONE:
        return job.no_result
    meaning = errors.MEANING.get(code, "an unknown exit code")
    status = job.status()
    error = ""
    if status != progress.before and status.get("code") == code and "reason" in status:
        error = f"error: {_in_a_line(status['reason'])}"
    error = error or _last_error(job.log, progress.log_from)
    return f"ended with {code} ({meaning}){': ' + error if error else ''}"


def _in_a_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())[:600]


def _last_error(log: Path, begin: int) -> str:
    """Output from the first error on, or the last line.

    Evaluations and commands with a wrong configuration write no status.json.
    """
    try:
        text = log.read_bytes()[begin:].decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.lower().startswith("error:")), None)
    shown = lines[-1:] if first is None else lines[first:]
    return _in_a_line("\n".join(shown))


def sweep(
    file: str,
    workdir: Path,
    words: Sequence[str] = (),
    *,
    launcher: str = "local",
    workers: int | None = None,
    minutes: float | None = None,
    dry_run: bool = False,
) -> int:
    """Run the jobs of a sweep file and return the exit code; `words` are --config.FIELD=VALUE.

    `dry_run` prints the script for sbatch of the jobs that could start now.
    """
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    content = read_sweep(file)
    plan = planned(content, workdir, words)
    if workers is not None and workers < 1:
        raise errors.ConfigError(f"--workers must be at least 1; got {workers}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise errors.ConfigError(f"--minutes must be above 0; got {minutes}")
    if launcher == "slurm":
        resources = workdir.resolve(), content.get("slurm", {}), workers
        if dry_run:
            ready = _ready(plan)[:workers]
            say(slurm.script(*resources, len(ready)) if ready else "# no job is left to run")
            return errors.DONE
        return run_plan(plan, slurm.Slurm(*resources), until)
    return run_plan(plan, Local(workers), until)


def _ready(plan: Plan) -> list[Job]:
    """Jobs that could start now."""
    left = [job for job in plan.jobs() if not job.is_done()]
    ahead = {job.folder.resolve() for job in left}
    return [job for job in left if ahead.isdisjoint(job.sources)]


def commands(file: str, workdir: Path, words: Sequence[str] = ()) -> str:
    """The command of every job known now, to paste into a shell."""
    plan = planned(read_sweep(file), workdir, words)
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
    import jax

    # Check jobs on the CPU, so that this process takes no device from training.
    jax.config.update("jax_platforms", "cpu")
    grid = jobs_of(content, workdir, fields_of(words))
    refuse_mistakes(grid)
    plan = Plan(grid, workdir, checked_rates(content, grid))
    refuse_other_runs(plan.jobs())
    return plan


def run_plan(plan: Plan, launcher: Local | slurm.Slurm, until: float = math.inf) -> int:
    workdir = plan.workdir
    Workdir(workdir).create()
    with locked(workdir, "another sweep"), stop_requests() as stopping, LiveTable() as display:
        scheduler = Scheduler(plan, launcher)
        known = len(scheduler.all)
        say(f"{counted(known, 'run')} in {workdir}, {launcher.workers} at a time{_to_choose(plan)}")
        code = scheduler.run(stopping, display, until=until)
    for progress in scheduler.of_state("failed"):
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


def read_sweep(path: str) -> Mapping[str, Any]:
    """Call get_config() of a sweep file, whose keys are in docs/sweeps.md."""
    if not Path(path).is_file():
        raise errors.ConfigError(f"--config={path}: there is no such sweep file")
    try:
        content = runpy.run_path(path)["get_config"]()
    except Exception as error:  # a user's file may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == path]
        where = f", line {lines[-1]}" if lines and not isinstance(error, SyntaxError) else ""
        raise errors.ConfigError(f"--config={path}{where}: {error!r}") from error
    return content


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


REDRAW_SECONDS = 1.0  # seconds
STATE_ORDER = ("running", "stopping", "failed", "waiting", "stopped", "done")


class LiveTable:
    """Draws the table when called with a scheduler; other output appears above it."""

    def __init__(self, console: Console | None = None):
        options: dict[str, Any] = dict(redirect_stderr=sys.stderr.isatty(), transient=True)
        self.live = Live(console=console, auto_refresh=False, **options)
        self.last = 0.0
        self.states: list[str] = []

    def __enter__(self) -> "LiveTable":
        if self.live.console.is_interactive:
            self.live.start()
        return self

    def __exit__(self, *_) -> None:
        self._draw("")
        self.live.stop()

    def __call__(self, scheduler: Scheduler) -> None:
        states = [progress.state for progress in scheduler.all]
        old = states != self.states or time.monotonic() - self.last >= REDRAW_SECONDS
        if self.live.is_started and old:
            self.last, self.states = time.monotonic(), states
            self._draw(live_table(scheduler, self.live.console.height - 3))

    def _draw(self, content: Group | str) -> None:
        try:
            self.live.update(content, refresh=self.live.is_started)
        except OSError:  # the terminal is closed
            silence(sys.stdout)


def live_table(scheduler: Scheduler, most: int) -> Group:
    """Counts, then a row per job, running jobs first; long names are folded, never cut."""
    jobs = sorted(scheduler.all, key=lambda progress: STATE_ORDER.index(progress.state))
    rows = Table(box=None, pad_edge=False)
    rows.add_column("run", overflow="fold")
    rows.add_column("state", min_width=10, no_wrap=True)
    for name, width in (("done", 11), ("loss", 7), ("tokens/s", 9), ("left", 7)):
        rows.add_column(name, justify="right", min_width=width, no_wrap=True)
    for progress in jobs[: max(1, most)]:
        rows.add_row(*map(Text, live_row(progress)))
    counts = {state: len(scheduler.of_state(state)) for state in STATE_ORDER}
    total = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return Group(Text(f"{counted(len(jobs), 'run')}: {total}{_left(scheduler)}"), rows)


def live_row(progress: Progress) -> list[str]:
    job, state = progress.job, progress.state
    if state == "running":
        evaluates = job.is_trained() and not isinstance(job, Trial)
        state = "evaluating" if evaluates else "training"
    metrics = job.last_metrics() if state in ("training", "evaluating", "done") else {}
    if not metrics:
        return [job.name, state]
    steps = job.config.steps
    done = f"{metrics['step']}/{steps}"
    loss = f"{metrics['loss']:.4f}" if metrics.get("loss") is not None else "-"
    speed = "" if state == "evaluating" else f"{metrics['tokens_per_second']:,.0f}"
    left = clock(_seconds_left(metrics, steps)) if state == "training" else ""
    return [job.name, state, done, loss, speed, left]


def _seconds_left(metrics: dict, steps: int) -> float:
    per_step = metrics["tokens"] / metrics["step"]
    return (steps - metrics["step"]) * per_step / max(metrics["tokens_per_second"], 1e-9)


def _left(scheduler: Scheduler) -> str:
    """Remaining time, estimated from the mean time of finished jobs."""
    done = [p.seconds for p in scheduler.of_state("done") if p.seconds]
    open_ = scheduler.of_state("waiting", "running")
    if not done or not open_:
        return ""
    mean = sum(done) / len(done)
    spent = sum(p.seconds + (time.monotonic() - p.began) for p, _ in scheduler.running.values())
    left = max(0.0, mean * len(open_) - spent) / scheduler.launcher.workers
    return f"; about {clock(left)} left"
