"""Keep the ratios of this machine in a folder, as <processor>.csv; a case of a benchmark that runs
again replaces its own rows."""

import csv
import re
import subprocess
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import ROOT
from benchmarks.timing import Range
from posenc_jax.runtime import backend


class Result(NamedTuple):
    case: str  # such as `128 x 32 rope`
    measure: str  # such as `over compiled`
    range: Range


def record(benchmark: str, results: Iterable[Result], folder: Path) -> Path:
    machine = backend.machine()
    facts = {
        "processor": machine["processor"],
        "cores": backend.cores(),
        "jaxlib": machine["jaxlib"],
        "torch": _version("torch"),
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
    # The last word of a processor is the hash of its features, which hypervisors change.
    name = machine["processor"].rpartition(" ")[0].lower()
    path = folder / f"{re.sub(r'[^a-z0-9]+', '-', name)}.csv"
    rows = [
        {"benchmark": benchmark, "case": one.case, "measure": one.measure}
        | {part: f"{value:.4g}" for part, value in one.range._asdict().items()}
        | facts
        for one in results
    ]
    kept = []
    if path.exists():
        with path.open(newline="") as stream:
            again = {(benchmark, one["case"]) for one in rows}
            kept = [
                row
                for row in csv.DictReader(stream)
                if (row["benchmark"], row["case"]) not in again
            ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept + rows)
    return path


def _version(package: str) -> str:
    try:
        return version(package)
    except ModuleNotFoundError:
        return ""


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
