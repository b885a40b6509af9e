"""The main figure as a picture, and the same numbers as text: groups of runs over their seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.picture import DASHES, ENCODINGS, NULL, WINDOW, look_of
from posenc_jax.evaluation.statistics import over_seeds, series


def draw(data: dict[str, Any], folder: Path) -> list[Path]:
    """A picture for each protocol; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for protocol in protocols.against_length():
        path = folder / f"{protocol}.png"
        if _draw(data, protocol, path):
            made.append(path)
    return made


def _draw(data: dict[str, Any], protocol: str, path: Path) -> bool:
    """All lines on the left; on the right those that stay near the best one, closer, with every
    seed as a point and without the bands, which would cover one another there."""
    from matplotlib.figure import Figure

    groups, windows = (grouped(data, protocol, method) for method in ("none", "window"))
    runs = {run["id"]: run for run in data["runs"]}
    kinds = {name: runs[curves[0]["run"]] for name, curves in groups.items()}
    found = {name: series(curves, "bpb") for name, curves in groups.items()}
    found = {name: line for name, line in found.items() if line[0]}
    look = looks(data["runs"])
    if not found:
        path.unlink(missing_ok=True)  # one of an earlier report
        return False
    low, high, highest = _near(found)
    panels = 2 if highest > high else 1
    figure = Figure(figsize=(6 * panels + 2, 5), layout="constrained")
    for axes in figure.subplots(1, panels, squeeze=False)[0]:
        for name in sorted(found, key=lambda name: _at_the_end(found[name])):
            _line(axes, name, found[name], look[name], bands=axes is figure.axes[0])
            baselines = ((groups[name], "null", NULL), (windows.get(name, []), "bpb", WINDOW))
            for curves, field, base in baselines:
                at, values = series(curves, field, beyond=kinds[name]["trained"])
                if at:
                    style: dict[str, Any] = base | {"color": look[name]["color"], "label": ""}
                    axes.plot(at, [float(np.mean(each)) for each in values], **style)
        axes.plot([], [], **NULL)
        axes.plot([], [], **WINDOW)
        for trained in {kind["trained"] for kind in kinds.values()}:
            axes.axvline(trained, color="0.6", linewidth=1, linestyle=":")
        _ticks(axes, sorted({x for lengths, _ in found.values() for x in lengths}))
    figure.axes[0].set_ylabel("bits per byte")
    if panels == 2:
        figure.axes[1].set_ylim(low, high)
        figure.axes[1].set_title("closer", fontsize=9)
    said = dict.fromkeys(c["points"][-1]["said"] for curves in groups.values() for c in curves)
    title = f"{protocol}: {protocols.find(protocol).title}"
    figure.suptitle(f"{title}\n{'; '.join(list(said)[:3])}", fontsize=10)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, loc="outside right center")
    figure.savefig(path, dpi=150)
    return True


def looks(runs: Sequence[dict]) -> dict[str, dict[str, Any]]:
    """Colour, mark and dash of each group: by its encoding, or apart where one has too many."""
    encodings = {run["group"]: run["encoding"] for run in runs}
    alike = {name: [g for g in encodings if encodings[g] == encodings[name]] for name in encodings}
    crowded = any(len(groups) > len(DASHES) for groups in alike.values())
    every = list(ENCODINGS.values())
    found = {}
    for index, (name, encoding) in enumerate(encodings.items()):
        color, mark = every[index % len(every)] if crowded else look_of(encoding)
        dash = index // len(every) if crowded else alike[name].index(name)
        found[name] = {"color": color, "mark": mark, "dash": dash % len(DASHES)}
    return found


def _line(axes, name: str, found: tuple, look: dict[str, Any], *, bands: bool) -> None:
    """The mean over seeds, every seed, and the t-interval where there are three."""
    colour, mark, dash = look["color"], look["mark"], DASHES[look["dash"]]
    x, values = found
    middle = [float(np.mean(each)) for each in values]
    axes.plot(x, middle, color=colour, marker=mark, linestyle=dash, markersize=5, label=name)
    for at, each in zip(x, values, strict=True):
        axes.plot([at] * len(each), each, ".", color=colour, markersize=3, alpha=0.5)
    over = [over_seeds(each) for each in values]
    if bands and all(band is not None for band in over):
        low, high = ([band[i] for band in over if band] for i in (1, 2))
        axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)


def _ticks(axes, lengths: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("length (tokens); dotted: the trained length")
    axes.grid(True, color="0.92")


def _near(found: dict[str, tuple[list[int], list[list[float]]]]) -> tuple[float, float, float]:
    """From the lowest value to a fifth above it, and the highest of all."""
    values = [value for _, lists in found.values() for each in lists for value in each]
    return 0.98 * min(values), 1.2 * min(values), max(values)


def _at_the_end(found: tuple[list[int], list[list[float]]]) -> tuple[int, float]:
    """The order of lines where they end, those that end earlier last."""
    lengths, values = found
    return -lengths[-1], float(np.mean(values[-1]))


def table(data: dict[str, Any], protocol: str = protocols.HEADLINE) -> str:
    """Bits per byte, groups by lengths; below a group its extensions, the best first."""
    lengths = sorted(
        {p["length"] for c in data["curves"] if c["protocol"] == protocol for p in c["points"]}
    )
    if not lengths:
        return "nothing has been evaluated yet"
    lines = [
        f"bits per byte, {protocol}: {protocols.find(protocol).title}; means over seeds",
        *_counts(data, protocol),
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
        first = ("none", "window")  # the baseline is no extension
        rows.sort(
            key=lambda row: (
                first.index(row[0]) if row[0] in first else len(first),
                row[1].get(lengths[-1], np.inf),
            )
        )
        words = {"none": name, "window": "  in a window of L"}
        for method, found in rows:
            label = words.get(method, f"  + {method}")
            numbers = (f"{found[n]:9.3f}" if n in found else f"{'-':>9}" for n in lengths)
            lines.append(f"{label[:24]:<24}" + "".join(numbers))
    return "\n".join(lines)


def _counts(data: dict[str, Any], protocol: str) -> list[str]:
    curves = [c for c in data["curves"] if c["protocol"] == protocol]
    said = dict.fromkeys(curve["points"][-1]["said"] for curve in curves)
    return [f"  {'; '.join(list(said)[:3])}"] if said else []


def grouped(data: dict[str, Any], protocol: str, method: str) -> dict[str, list[dict]]:
    groups: dict[str, list[dict]] = {}
    kinds = {run["id"]: run["group"] for run in data["runs"]}
    for curve in data["curves"]:
        if (curve["protocol"], curve["method"]) == (protocol, method):
            groups.setdefault(kinds[curve["run"]], []).append(curve)
    return groups


def _of(data, protocol: str, group: str) -> list[dict]:
    ids = {run["id"] for run in data["runs"] if run["group"] == group}
    return [c for c in data["curves"] if c["protocol"] == protocol and c["run"] in ids]
