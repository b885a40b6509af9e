"""The main figure as a picture, and the same numbers as text: groups of runs over their seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.evaluation.picture import DASHES, ENCODINGS, NULL, OTHER
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.evaluation.windows import WORD
from posenc_jax.reporting.gather import RANKED


def draw(data: dict[str, Any], folder: Path) -> list[Path]:
    """A picture for each protocol; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for protocol in RANKED:
        path = folder / f"{protocol}.png"
        if _draw(data, protocol, path):
            made.append(path)
    return made


def _draw(data: dict[str, Any], protocol: str, path: Path) -> bool:
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    groups = grouped(data, protocol, "none")
    if not groups:
        return False
    runs = {run["id"]: run for run in data["runs"]}
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    seen: dict[str, int] = {}
    lengths: set[int] = set()
    for name, curves in groups.items():
        encoding = runs[curves[0]["run"]]["encoding"]
        colour, mark = ENCODINGS.get(encoding, OTHER)
        dash = DASHES[seen.get(encoding, 0) % len(DASHES)]
        seen[encoding] = seen.get(encoding, 0) + 1
        x, values = series(curves, "bpb")
        lengths |= set(x)
        middle = [float(np.mean(found)) for found in values]
        axes.plot(x, middle, color=colour, marker=mark, linestyle=dash, markersize=5, label=name)
        for at, found in zip(x, values, strict=True):
            axes.plot([at] * len(found), found, ".", color=colour, markersize=3, alpha=0.5)
        bands = [over_seeds(found) for found in values]
        if all(band is not None for band in bands):
            low, high = ([band[i] for band in bands if band] for i in (1, 2))
            axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
        at, nulls = series(curves, "null", beyond=runs[curves[0]["run"]]["trained"])
        if at:
            style: dict[str, Any] = NULL | {"color": colour, "label": ""}
            axes.plot(at, [float(np.mean(found)) for found in nulls], **style)
    axes.plot([], [], **NULL)
    for trained in {runs[curves[0]["run"]]["trained"] for curves in groups.values()}:
        axes.axvline(trained, color="0.6", linewidth=1, linestyle=":")
    axes.set_xscale("log")
    axes.set_xticks(sorted(lengths), [f"{n:,}" for n in sorted(lengths)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("length (tokens); dotted: the trained length")
    axes.set_ylabel("bits per byte")
    axes.grid(True, color="0.92")
    figure.suptitle(f"{protocol}: {WORD[protocol]}", fontsize=10)
    figure.legend(fontsize=8, frameon=False, loc="outside right center")
    figure.savefig(path, dpi=150)
    return True


def table(data: dict[str, Any], protocol: str = "same_token") -> str:
    """Bits per byte, groups by lengths; below a group its extensions, the best first."""
    lengths = sorted(
        {p["length"] for c in data["curves"] if c["protocol"] == protocol for p in c["points"]}
    )
    if not lengths:
        return "nothing has been evaluated yet"
    lines = [
        f"bits per byte, {protocol}: {WORD[protocol]}; means over seeds",
        " " * 24 + "".join(f"{n:>9,}" for n in lengths),
    ]
    names = dict.fromkeys(run["group"] for run in data["runs"] if run["evaluated"])
    for name in names:
        rows = []
        for method in dict.fromkeys(c["method"] for c in _of(data, protocol, name)):
            curves = [c for c in _of(data, protocol, name) if c["method"] == method]
            x, values = series(curves, "bpb")
            found = {n: float(np.mean(v)) for n, v in zip(x, values, strict=True)}
            rows.append((method, found))
        rows.sort(key=lambda row: (row[0] != "none", row[1].get(lengths[-1], np.inf)))
        for method, found in rows:
            label = name if method == "none" else f"  + {method}"
            numbers = (f"{found[n]:9.3f}" if n in found else f"{'-':>9}" for n in lengths)
            lines.append(f"{label[:24]:<24}" + "".join(numbers))
    return "\n".join(lines)


def grouped(data: dict[str, Any], protocol: str, method: str) -> dict[str, list[dict]]:
    groups: dict[str, list[dict]] = {}
    kinds = {run["id"]: run["group"] for run in data["runs"]}
    for curve in data["curves"]:
        if (curve["protocol"], curve["method"]) == (protocol, method):
            groups.setdefault(kinds[curve["run"]], []).append(curve)
    return groups


def series(
    curves: Sequence[dict], field: str, beyond: int = 0
) -> tuple[list[int], list[list[float]]]:
    """Lengths, and at each the values of every seed that has one."""
    found: dict[int, list[float]] = {}
    for curve in curves:
        for point in curve["points"]:
            if point[field] is not None and point["length"] >= beyond:
                found.setdefault(point["length"], []).append(point[field])
    return sorted(found), [found[length] for length in sorted(found)]


def _of(data, protocol: str, group: str) -> list[dict]:
    ids = {run["id"] for run in data["runs"] if run["group"] == group}
    return [c for c in data["curves"] if c["protocol"] == protocol and c["run"] in ids]
