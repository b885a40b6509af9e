"""The live table of a sweep, drawn only on a terminal."""

import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from posenc_jax.sweeping.scheduler import Progress, Scheduler
from posenc_jax.terminal import clock, counted, silence

EVERY = 1.0  # seconds
ORDER = ("running", "failed", "waiting", "stopped", "done")


class Display:
    """Draws the table when called with a scheduler; other output appears above it."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console()
        self.live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),
        )
        self.last = 0.0

    def __enter__(self) -> "Display":
        if self.console.is_interactive:
            self.live.start()
        return self

    def __exit__(self, *_) -> None:
        self._draw("")
        self.live.stop()

    def __call__(self, scheduler: Scheduler) -> None:
        if self.live.is_started and time.monotonic() - self.last >= EVERY:
            self.last = time.monotonic()
            self._draw(table(scheduler, self.console.height - 3))

    def _draw(self, content: Group | str) -> None:
        try:
            self.live.update(content, refresh=self.live.is_started)
        except OSError:  # the terminal is closed
            silence(sys.stdout)


def table(scheduler: Scheduler, most: int) -> Group:
    """Counts, then a row per job, running jobs first; long names are folded, never cut."""
    jobs = sorted(scheduler.all, key=lambda progress: ORDER.index(progress.state))
    rows = Table(box=None, pad_edge=False)
    rows.add_column("run", overflow="fold")
    rows.add_column("state", min_width=10, no_wrap=True)
    for name, width in (("done", 11), ("loss", 7), ("tokens/s", 9), ("left", 7)):
        rows.add_column(name, justify="right", min_width=width, no_wrap=True)
    for progress in jobs[: max(1, most)]:
        rows.add_row(*map(Text, row(progress)))
    counts = {state: sum(p.state == state for p in jobs) for state in ORDER}
    total = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return Group(Text(f"{counted(len(jobs), 'run')}: {total}{_left(scheduler)}"), rows)


def row(progress: Progress) -> list[str]:
    job, state = progress.job, progress.state
    if state == "running":
        state = "evaluating" if job.is_trained() else "training"
    done = loss = speed = left = ""
    metrics = job.last_metrics() if state in ("training", "evaluating", "done") else {}
    if metrics:
        steps = job.config.steps
        done = f"{metrics['step']}/{steps}"
        loss = f"{metrics['loss']:.4f}" if metrics.get("loss") is not None else "-"
        if state != "evaluating":
            speed = f"{metrics['tokens_per_second']:,.0f}"
        if state == "training":
            left = clock(_seconds_left(metrics, steps))
    return [job.name, state, done, loss, speed, left]


def _seconds_left(metrics: dict, steps: int) -> float:
    per_step = metrics["tokens"] / metrics["step"]
    return (steps - metrics["step"]) * per_step / max(metrics["tokens_per_second"], 1e-9)


def _left(scheduler: Scheduler) -> str:
    """Remaining time, estimated from the mean time of finished jobs."""
    done = [p.seconds for p in scheduler.all if p.state == "done" and p.seconds]
    open_ = [p for p in scheduler.all if p.state in ("waiting", "running")]
    if not done or not open_:
        return ""
    mean = sum(done) / len(done)
    spent = sum(p.seconds + (time.monotonic() - p.began) for p, _ in scheduler.running.values())
    left = max(0.0, mean * len(open_) - spent) / scheduler.launcher.workers
    return f"; about {clock(left)} left"
