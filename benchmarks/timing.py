"""Time competitors in turns, so that a disturbance hits all of them, and take ratios."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

QUARTILES = (25, 50, 75)
Times = dict[str, np.ndarray]  # seconds, one per round


def in_turns(calls: Mapping[str, Callable[[], object]], seconds: float, least: int = 7) -> Times:
    """Time as many rounds as fit, each calling every competitor once, after a warm-up call."""
    for call in calls.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < least or time.perf_counter() < end:
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - begin)
        rounds += 1
    return {name: np.array(times) for name, times in taken.items()}


class Range(NamedTuple):
    """The middle half of the rounds, and their median."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(times: Times, ours: str, theirs: str) -> Range:
    """How many times as fast ours is."""
    return Range(*np.percentile(times[theirs] / times[ours], QUARTILES))


def table(head: list[str], rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def machine() -> str:
    """Describe the machine that figures were taken on."""
    names = [line for line in open("/proc/cpuinfo") if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.processor()
    packages = ", ".join(f"{p} {version(p)}" for p in ("jax", "jaxlib"))
    return (
        f"{len(os.sched_getaffinity(0))} x {name}; Python {platform.python_version()}, {packages}"
    )
