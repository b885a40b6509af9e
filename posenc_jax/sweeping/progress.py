"""A sweep on a terminal: a table that stays in place, or a line per run that ended."""

import shutil
import sys
import time

from posenc_jax.sweeping.scheduler import Progress, Scheduler
from posenc_jax.terminal import clock, say

EVERY = 1.0  # seconds
HEAD = f"{'run':<28} {'state':<11} {'step':>13} {'loss':>8} {'tokens/s':>9} {'left':>8}"


class Table:
    def __init__(self, live: bool | None = None):
        self.live = sys.stdout.isatty() if live is None else live
        self.drawn, self.last = 0, 0.0

    def __call__(self, scheduler: Scheduler) -> None:
        if not self.live or time.monotonic() - self.last < EVERY:
            return
        self.last = time.monotonic()
        size = shutil.get_terminal_size()
        self._draw([line[: size.columns - 1] for line in lines(scheduler, size.lines - 2)])

    def say(self, text: str) -> None:
        """A line that stays, above the table."""
        self._clear()
        say(text)

    def _draw(self, rows: list[str]) -> None:
        self._clear()
        say("\n".join(rows))
        self.drawn = len(rows)

    def _clear(self) -> None:
        if self.drawn:
            print(f"\x1b[{self.drawn}F\x1b[J", end="")
            self.drawn = 0


def lines(scheduler: Scheduler, most: int) -> list[str]:
    """Running jobs first; what does not fit is counted."""
    order = ("training", "evaluating", "failed", "waiting", "stopped", "done")
    jobs = sorted(scheduler.all, key=lambda progress: order.index(progress.state))
    room = max(1, most - 2)
    counted = {name: sum(p.state == name for p in scheduler.all) for name in order}
    total = ", ".join(f"{number} {name}" for name, number in counted.items() if number)
    return [HEAD, *map(line, jobs[:room]), f"{len(jobs)} runs: {total}{_left(scheduler)}"]


def line(progress: Progress) -> str:
    job, metrics = progress.job, {}
    step = speed = loss = left = ""
    if progress.state in ("training", "evaluating", "done"):
        metrics = job.last_metrics()
    if metrics:
        steps = job.config.steps
        step = f"{metrics['step']}/{steps}"
        loss = f"{metrics['loss']:.4f}" if metrics.get("loss") is not None else "-"
        speed = f"{metrics['tokens_per_second']:,.0f}"
        if progress.state == "training":
            left = clock(_seconds_left(metrics, steps))
    return (
        f"{job.name[:28]:<28} {progress.state:<11} {step:>13} {loss:>8} {speed:>9} {left:>8}"
    ).rstrip()


def _seconds_left(metrics: dict, steps: int) -> float:
    a_step = metrics["tokens"] / metrics["step"]
    return (steps - metrics["step"]) * a_step / max(metrics["tokens_per_second"], 1e-9)


def _left(scheduler: Scheduler) -> str:
    """As long for each waiting job as the finished ones took."""
    done = [p.seconds for p in scheduler.all if p.state == "done" and p.seconds]
    open_ = [p for p in scheduler.all if p.state in ("waiting", "training", "evaluating")]
    if not done or not open_:
        return ""
    mean = sum(done) / len(done)
    spent = sum(p.seconds + (time.monotonic() - p.began) for p, _ in scheduler.running.values())
    left = max(0.0, mean * len(open_) - spent) / scheduler.launcher.workers
    return f"; about {clock(left)} left"
