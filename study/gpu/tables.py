"""The tables of the page on GPUs."""

import json
import tarfile
from functools import cache, partial
from typing import Any

import pandas as pd

from posenc_jax.display import Table
from study.cells import STUDY, short, table
from study.gpu import order
from study.order.tables import ENCODINGS, FOUND, ORDER

SHOWN = "nope rope sandwich hybrid fox relative".split()


def records(file: str, part: str) -> dict[str, dict[str, Any]]:
    """Finished measurements of a part, by name."""
    lines = (STUDY / "gpu" / file).read_text(encoding="utf-8").splitlines()
    done = [one for one in map(json.loads, lines) if one["state"] == "done"]
    return {one["key"].partition("/")[2]: one for one in done if one["key"].startswith(f"{part}/")}


def gpu_kernels() -> Table:
    """Milliseconds of attention and its gradient."""
    body, ways = [], ("plain", "blockwise", "cudnn")
    every = records("nvidia-h200.jsonl", "kernels")
    for name in SHOWN:
        record = every[f"{name}@1024"]
        times = [record.get(f"{way}_ms") for way in ways]
        ratio = times[0] / times[2] if times[2] else None
        cells = [f"{ms:.2f}" if ms else "-" for ms in times]
        body.append([name, *cells, f"{ratio:.1f}" if ratio else "-"])
    head = ["", "plain, ms", "blocks, ms", "cuDNN, ms", "plain over cuDNN"]
    return Table("", head, body)


def gpu_steps() -> Table:
    """Training steps of 125M parameters."""
    one = records("done/gpu.jsonl", "steps")["125m rope"]
    line = ["125m rope", f"{one['tokens_per_s']:,.0f}", f"{one['mfu']:.1%}"]
    return Table("", ["", "tokens per second", "of the peak"], [line])


@cache
def campaign(plan: str) -> pd.DataFrame:
    """Rows of the finished runs of a plan."""
    found = []
    for archive in sorted((STUDY / "gpu" / "done").glob(f"{plan}-*.tar.xz")):
        with tarfile.open(archive) as runs:
            names = [name for name in runs.getnames() if name.endswith("curves.csv")]
            found += [pd.read_csv(runs.extractfile(name)) for name in names]
    return pd.concat(found)


def gpu_order() -> Table:
    """Found and order beyond L of the runs of 10.7M parameters, without an extension."""
    rows, far = campaign("order"), {"length": order.FAR * order.L}
    rows = rows[rows.method == "none"].assign(name=lambda own: own.encoding.map(ENCODINGS))
    columns = {"found beyond L": FOUND | far, "order beyond L": ORDER | far}
    names = sorted(rows[rows.part == "beyond"].name.unique())
    cell = partial(short, of=3)
    return table(
        rows, {n: {"name": n} for n in names}, columns, corner="8 L = 4,096 tokens", cell=cell
    )


TABLES = {"gpu-kernels": gpu_kernels, "gpu-steps": gpu_steps, "gpu-order": gpu_order}
