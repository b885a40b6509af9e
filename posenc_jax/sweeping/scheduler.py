"""Run the jobs of a sweep: start, resume and retry their commands, and report failures."""

import collections
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from posenc_jax import errors
from posenc_jax.sweeping.jobs import Job
from posenc_jax.sweeping.launch import Launcher, Task

RETRIES = 2
PATIENCE = 3  # exits with "run again" in a row without a new checkpoint
PAUSE = 5.0  # seconds before a failed command is retried
BUSY_TRIES = 60  # PAUSE apart, while the run of a killed sweep saves and exits
# Exit codes that a retry would repeat.
SAME_AGAIN = (errors.CONFIG, errors.DATA, errors.NOT_FINITE, errors.OTHER_CONFIG)


@dataclasses.dataclass
class Progress:
    """State of a job in this process, beyond its folder."""

    job: Job
    state: str = "waiting"  # waiting, running, done, failed, stopped
    code: int | None = None
    reason: str = ""
    failures: int = 0
    idle: int = 0  # exits with "run again" in a row without a new checkpoint
    step: int = 0
    not_before: float = 0.0
    began: float = 0.0
    log_from: int = 0  # bytes of its log that are from earlier commands
    before: dict = dataclasses.field(default_factory=dict)  # the run's status before the command
    busy: int = 0  # times in a row that another process had locked its folder
    seconds: float = 0.0  # run time of its commands


class Scheduler:
    """Runs jobs; after each that ends, `more` returns all jobs known now, in order."""

    def __init__(
        self,
        jobs: Sequence[Job],
        launcher: Launcher,
        retries: int = RETRIES,
        more: Callable[[], Sequence[Job]] | None = None,
    ):
        self.all = [Progress(job) for job in jobs]
        self.launcher, self.retries, self.more = launcher, retries, more
        self.waiting = collections.deque(self.all)
        self.running: dict[str, tuple[Progress, Task]] = {}

    def run(
        self,
        stopping: list[str],
        show: Callable[["Scheduler"], None],
        say: Callable[[str], None],
        every: float = 0.2,
        until: float = math.inf,
    ) -> int:
        """Run all jobs; return 0, the exit code of the first failed job, or 75 after a stop.

        `stopping` names the source of a stop request; `until` (of `time.monotonic`) adds one.
        """
        stop_sent = False
        while self.running or (self.waiting and not stopping):
            if time.monotonic() >= until and not stopping:
                stopping.append("--minutes")
            if stopping and not stop_sent:
                stop_sent = True
                say(f"stopping by {stopping[0]}: running jobs save first")
                for _, task in self.running.values():
                    task.stop()
            if not stopping:
                self._start(say)
                self.launcher.launch()
            for name, (progress, task) in list(self.running.items()):
                code = task.poll()
                if code is not None:
                    del self.running[name]
                    self._ended(progress, code, bool(stopping), say)
            show(self)
            time.sleep(every)
        if stopping:
            say("stopped; the same command resumes")
            return errors.AGAIN
        failed = [progress for progress in self.all if progress.state == "failed"]
        return (failed[0].code or errors.FAULT) if failed else errors.DONE

    def _start(self, say) -> None:
        for _ in range(len(self.waiting)):
            if len(self.running) >= self.launcher.workers:
                return
            progress = self.waiting.popleft()
            job = progress.job
            # A run that is measured may still be ending as a trial.
            if progress.not_before > time.monotonic() or job.name in self.running:
                self.waiting.append(progress)
                continue
            try:
                done = job.is_done()
            except OSError as error:
                self._failed(progress, errors.IO, f"its folder cannot be read: {error}", say)
                continue
            if done:
                already_done = progress.seconds == 0
                self._finish(progress, "done", "done already" if already_done else "done", say)
                continue
            progress.state = "running"
            progress.began = time.monotonic()
            try:
                job.folder.mkdir(parents=True, exist_ok=True)
                progress.before = job.status()
                progress.log_from = job.log.stat().st_size if job.log.exists() else 0
                task = self.launcher.start(job.name, job.command, job.log)
            except OSError as error:  # such as a full disk; other jobs may still start
                self._failed(progress, errors.IO, f"could not be started: {error}", say)
            else:
                self.running[job.name] = progress, task

    def _ended(self, progress: Progress, code: int, stopping: bool, say) -> None:
        job = progress.job
        progress.seconds += time.monotonic() - progress.began
        done, reason = False, None
        status = job.status()
        step = status.get("saved", 0) or 0
        if code in job.ends_well:
            try:
                job.mark_evaluated()
                done = job.is_done()
            except (OSError, errors.Stop) as error:
                code, reason = errors.IO, f"succeeded but could not be recorded: {error}"
        if done:
            progress.failures = progress.idle = progress.busy = 0
            self._wait(progress, first=True)
        elif stopping:
            progress.state = "stopped"
        elif code == errors.AGAIN and (step > progress.step or progress.idle < PATIENCE):
            progress.idle = 0 if step > progress.step else progress.idle + 1
            self._wait(progress, first=True)
        elif code == errors.BUSY and progress.busy < BUSY_TRIES:
            progress.busy += 1
            if progress.busy == 1:
                say(f"{job.name}: waiting for another process, which has locked its folder")
            self._wait(progress, pause=PAUSE)
        else:
            self._failed(progress, code, reason or reason_of(progress, code), say)
        progress.step = step

    def _failed(self, progress: Progress, code: int, reason: str, say) -> None:
        progress.failures += 1
        progress.code, progress.reason = code, reason
        if code in SAME_AGAIN or progress.failures > self.retries:
            self._finish(progress, "failed", f"FAILED, {reason}", say)
        else:
            say(f"{progress.job.name}: {reason}; retrying")
            self._wait(progress, pause=PAUSE)

    def _wait(self, progress: Progress, *, first: bool = False, pause: float = 0.0) -> None:
        progress.state, progress.not_before = "waiting", time.monotonic() + pause
        self.waiting.appendleft(progress) if first else self.waiting.append(progress)

    def _finish(self, progress: Progress, state: str, word: str, say) -> None:
        progress.state = state
        metrics = progress.job.last_metrics()
        numbers = f", loss {metrics['loss']:.4f}" if metrics.get("loss") is not None else ""
        took = f", {progress.seconds:,.0f} s" if progress.seconds else ""
        ended = sum(p.state in ("done", "failed") for p in self.all)
        picture = progress.job.picture if word == "done" else None
        drawn = f"; {picture}" if picture else ""
        say(f"[{ended}/{len(self.all)}] {progress.job.name}: {word}{numbers}{took}{drawn}")
        if self.more is not None:
            self._grow(self.more())

    def _grow(self, jobs: Sequence[Job]) -> None:
        """Add new jobs; a tuning run that is now to be evaluated is replaced by its full job."""
        known = [progress.job for progress in self.all]
        new = [Progress(job) for job in jobs if job not in known]
        replaced = {progress.job.name for progress in new}
        self.all = [p for p in self.all if p.job.name not in replaced] + new
        order = {job.name: number for number, job in enumerate(jobs)}
        self.waiting = collections.deque(
            sorted([*self.waiting, *new], key=lambda p: order.get(p.job.name, -1))
        )


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
