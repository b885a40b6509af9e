"""Pictures of curves. An encoding has one colour everywhere; two protocols never share a chart."""

import colorsys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax import composition
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.table import counts, is_baseline, label
from posenc_jax.terminal import warn

# Told apart by colour-blind readers (after Okabe and Ito, and Tol), with a mark for print.
ENCODINGS = {
    "rope": ("#0072B2", "o"),
    "alibi": ("#D55E00", "s"),
    "sinusoidal": ("#E69F00", "^"),
    "nope": ("#000000", "D"),
    "learned": ("#CC79A7", "v"),
    "t5": ("#009E73", "P"),
    "kerple_log": ("#56B4E9", "X"),
    "fire": ("#882255", "*"),
    "xpos": ("#332288", "h"),
    "kerple_power": ("#999933", "<"),
    "sandwich": ("#AA4499", ">"),
    "randomized": ("#777777", "p"),
    "fox": ("#661100", "d"),
    "hybrid": ("#44AA99", "8"),
}
EXTENSIONS = {
    "pi": ("#D55E00", "s"),
    "ntk": ("#E69F00", "^"),
    "ntk_by_parts": ("#999933", "<"),
    "yarn": ("#009E73", "P"),
    "llama3": ("#CC79A7", "v"),
    "longrope": ("#882255", "*"),
    "abf": ("#56B4E9", "X"),
    "interpolate": ("#009E73", "P"),
    "clamp": ("#D55E00", "s"),
    "logn": ("#AA4499", ">"),
}
FOLLOWING = {"dynamic_pi": "pi", "dynamic_ntk": "ntk", "dynamic_yarn": "yarn"}  # dashed
EXTENSIONS |= {name: EXTENSIONS[static] for name, static in FOLLOWING.items()}
NULL: dict[str, Any] = dict(
    color="0.2", linestyle=(0, (1, 1.6)), linewidth=1.2, label="null: no use of more than L tokens"
)
WINDOW: dict[str, Any] = dict(
    color="0.2", linestyle=(0, (5, 2, 1, 2)), linewidth=1.1, label="the last L tokens alone"
)
DASHES = ("-", (0, (7, 2)), (0, (7, 2, 2, 2)), (0, (3, 2)))  # of runs of one encoding
BANDS = 5  # lines that can have bands and still be told apart
SPARE = ("H", "x", "+", "1", "2", "3", "4")  # marks of names that have no look above


def look_of(name: str, looks: Mapping[str, tuple[str, str]] = ENCODINGS) -> tuple[str, str]:
    """Colour and mark; those of a new name follow from it, so they are the same everywhere."""
    if name in looks:
        return looks[name]
    number = zlib.crc32(name.encode())
    red, green, blue = colorsys.hls_to_rgb(number % 360 / 360, 0.4, 0.6)
    colour = "#" + "".join(f"{round(255 * part):02X}" for part in (red, green, blue))
    return colour, SPARE[number // 360 % len(SPARE)]


def draw(cells: Sequence[Measured], folder: Path, evaluation: str = records.HELD_OUT) -> list[Path]:
    """Every picture that these cells make, of one run or of several; the files. Those of another
    text than the run's own held-out one have its name behind theirs."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        warn("no pictures: matplotlib is not installed here")
        return []
    folder.mkdir(parents=True, exist_ok=True)
    behind = "" if evaluation == records.HELD_OUT else f"-{evaluation}"

    def at(name: str) -> Path:
        return folder / f"{name}{behind}.png"

    for name in (*(protocol.name for protocol in protocols.shown()), "scale", "budget"):
        at(name).unlink(missing_ok=True)  # of an earlier evaluation of that name
    rows = records.rows(cells)
    last = max(row["step"] for row in rows)
    several_runs = len({row["run"] for row in rows}) > 1
    newest = [row for row in rows if several_runs or row["step"] == last]
    last_cells = [c for c in cells if several_runs or c.facts["step"] == last]
    made = [curves(newest, name, at(name)) for name in protocols.against_length()]
    for protocol in protocols.shown():
        if protocol.by_place:
            made.append(by_place(last_cells, protocol.name, at(protocol.name)))
    if not several_runs:
        made += [scales(newest, at("scale")), budget(rows, at("budget"))]
    return [path for path in made if path is not None]


def curves(rows: Sequence[dict], protocol: str, path: Path) -> Path | None:
    """Against length: perplexity, or bits per byte with bands, as the protocol has it.

    Nats per token where tokens do not hold the text, and so no bits per byte are known.
    """
    rows = [row for row in rows if row["protocol"] == protocol and row["nll"] is not None]
    if not rows:
        return None
    figure, axes = _figure()
    in_bits = protocols.find(protocol).value == "bpb"
    value = _value_of(rows) if in_bits else "ppl"
    lines = _series(rows)
    bands = in_bits and sum(not is_baseline(s[0]) for s in lines) <= BANDS
    for series in lines:
        style = _style(series[0], rows)
        x = [row["length"] for row in series]
        y = np.array([row[value] for row in series])
        axes.plot(x, y, **style)
        if bands and not is_baseline(series[0]):
            half = 1.96 * y * [(row["nll_se"] or 0) / row["nll"] for row in series]
            axes.fill_between(x, y - half, y + half, color=style["color"], alpha=0.12, linewidth=0)
    _null_lines(axes, rows, value)
    _length_axis(axes, rows)
    if not in_bits:
        axes.set_yscale("log")
        _plain_log_labels(axes)
    _labels(axes, protocol, VALUES[value])
    _say_counts(axes, rows)
    return _save(figure, axes, path)


VALUES = {"bpb": "bits per byte", "nll": "nats per token", "ppl": "perplexity per token"}


def _value_of(rows: Sequence[dict]) -> str:
    return "nll" if any(row["bpb"] is None for row in rows) else "bpb"


def _say_counts(axes, rows: Sequence[dict]) -> None:
    longest = max(rows, key=lambda row: row["length"])
    axes.set_title(f"{longest['evaluation']}: {counts(longest)}", fontsize=8, color="0.35")


def by_place(cells: Sequence[Measured], protocol: str, path: Path) -> Path | None:
    """The loss at every place of the longest window, over places that lie close together."""
    chosen = [cell for cell in cells if cell.facts["protocol"] == protocol]
    chosen = [cell for cell in chosen if np.all(np.isfinite(cell.sums.by_place))]
    if not chosen:
        return None
    figure, axes = _figure()
    rows = [cell.facts for cell in chosen]
    several = len({row["run"] for row in rows}) > 1
    for cell in chosen:
        places = cell.sums.by_place / cell.sums.windows
        x, y = smooth(places)
        axes.plot(x, y, **_style(cell.facts, rows) | {"marker": ""})
        if cell.facts["extension"] == "none" and not cell.facts["window"] and not several:
            trained = cell.facts["train_length"]
            constant = records.beyond_trained(cell, cells)
            if constant is not None:
                axes.plot([trained, len(places)], [constant, constant], **NULL)
    _length_axis(axes, rows)
    _labels(axes, protocol, "nats per token", x="place in the window (tokens)")
    _say_counts(axes, [records.row(cell) for cell in chosen])
    return _save(figure, axes, path)


def scales(rows: Sequence[dict], path: Path) -> Path | None:
    """For extensions that were tried at several scales: one panel each, a line per scale."""
    rows = [r for r in rows if r["protocol"] == protocols.HEADLINE and r["nll"] is not None]
    tried: dict[str, set] = {}
    for row in rows:
        if row["scale"] is not None:
            tried.setdefault(row["extension"], set()).add(row["scale"])
    names = [name for name, found in tried.items() if len(found) > 1]
    if not names:
        return None
    figure, panels = _figure(len(names))
    value = _value_of(rows)
    for name, axes in zip(names, np.atleast_1d(panels), strict=True):
        plain = [r for r in rows if r["extension"] == "none" and not r["window"]]
        every = sorted(tried[name])
        for rank, scale in enumerate([*([None] if plain else []), *every]):
            chosen = [r for r in rows if (r["extension"], r["scale"]) == (name, scale)]
            chosen = plain if scale is None else chosen
            grey = str(0.75 - 0.75 * rank / len(every))
            shade = _style_of(plain[0])[0] if scale is None else grey
            axes.plot(
                [r["length"] for r in chosen],
                [r[value] for r in chosen],
                color=shade,
                marker="o" if scale is None else "sPX^vD*"[rank % 7],
                label="none" if scale is None else f"s = {scale:g}",
            )
        _length_axis(axes, rows)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("length (tokens)")
        axes.set_ylabel(VALUES[value])
        axes.grid(True, color="0.92")
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)
    return path


def budget(rows: Sequence[dict], path: Path) -> Path | None:
    """The same length read at every checkpoint, without an extension."""
    rows = [
        row
        for row in rows
        if (row["protocol"], row["extension"], row["window"]) == (protocols.HEADLINE, "none", None)
        and row["nll"] is not None
    ]
    scored = max(rows, key=lambda row: row["step"])["token_hash"] if rows else None
    rows = [row for row in rows if row["token_hash"] == scored]  # of the newest checkpoint
    value = _value_of(rows)
    if len({row["step"] for row in rows}) < 2:
        return None
    figure, axes = _figure()
    lengths = sorted({row["length"] for row in rows})
    for rank, length in enumerate(lengths):
        chosen = sorted((r["step"], r[value]) for r in rows if r["length"] == length)
        within = length <= rows[0]["train_length"]
        shade = rank / max(1, len(lengths) - 1)
        axes.plot(
            *zip(*chosen, strict=True),
            color=(0.1 + 0.8 * shade, 0.35, 0.7 * (1 - shade)),
            marker="osP^vDX*"[rank % 8],
            linestyle="-" if within else "--",
            label=f"length {length}" + ("" if within else " (beyond L)"),
        )
    _labels(axes, protocols.HEADLINE, VALUES[value], x="training step")
    _say_counts(axes, rows)
    return _save(figure, axes, path)


def _series(rows: Sequence[dict]) -> list[list[dict]]:
    """Rows of one line, by length."""
    lines: dict[tuple, list[dict]] = {}
    for row in rows:
        names = ("run", "seed", "step", "extension", "scale", "window")
        lines.setdefault(tuple(row[name] for name in names), []).append(row)
    return [sorted(line, key=lambda row: row["length"]) for line in lines.values()]


def _style_of(row: dict) -> tuple[str, str]:
    return look_of(row["encoding"])


def _style(row: dict, rows: Sequence[dict]) -> dict[str, Any]:
    """Colour by encoding where there are several, else by extension."""
    runs = list(dict.fromkeys(r["run"] for r in rows))
    colour, mark = _style_of(row)
    name = label(row)
    extension = composition.parts(row["extension"])[0].name
    if len({r["encoding"] for r in rows}) == 1 and extension not in ("none", "window"):
        colour, mark = look_of(extension, EXTENSIONS)
    line = "-"
    if row["extension"] != extension:  # composed, or with options
        line = ":"
    elif extension in FOLLOWING:
        line = "--"
    elif len({r["encoding"] for r in rows}) > 1 and row["extension"] != "none":
        line = "--"
    style: dict[str, Any] = dict(color=colour, marker=mark, linestyle=line, markersize=5)
    if is_baseline(row):
        style |= dict(color="0.45", marker="", linestyle="-.", linewidth=1.2)
        name = f"window: sees the last {row['window']} tokens"
    pairs = {(r["run"], r["encoding"]) for r in rows}
    same = [run for run in runs if (run, row["encoding"]) in pairs]
    if len(runs) > 1:
        who = row["run"] if len(same) > 1 else row["encoding"]
        name = who if name == "none" else f"{who} + {name}"
        if same.index(row["run"]):
            style |= dict(
                linestyle=DASHES[same.index(row["run"]) % len(DASHES)], markerfacecolor="white"
            )
    scales_tried = sorted({r["scale"] for r in rows if r["extension"] == row["extension"]} - {None})
    if len(scales_tried) > 1:
        style["alpha"] = 0.35 + 0.65 * scales_tried.index(row["scale"]) / (len(scales_tried) - 1)
    return style | {"label": name}


def _null_lines(axes, rows: Sequence[dict], value: str) -> None:
    """Of the runs as they are, from the trained length on."""
    several = len({row["run"] for row in rows}) > 1
    said = False
    for series in _series(rows):
        first = series[0]
        if first["extension"] != "none" or first["window"]:
            continue
        beyond = [r for r in series if r["null_nll"] and r["length"] >= r["train_length"]]
        if not beyond:
            continue
        to_value = {
            "ppl": lambda r: np.exp(r["null_nll"]),
            "nll": lambda r: r["null_nll"],
            "bpb": lambda r: r["bpb"] * r["null_nll"] / r["nll"],
        }[value]
        axes.plot(
            [r["length"] for r in beyond],
            [to_value(r) for r in beyond],
            **NULL
            | ({"color": _style_of(first)[0]} if several else {})
            | ({"label": None} if said else {}),
        )
        said = True


def smooth(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over neighbouring places, as many as lie within a sixth of an octave."""
    octaves = np.arange(0, np.log2(len(places)) + 1 / 6, 1 / 6)
    edges = np.unique(np.round(2**octaves).astype(int))
    edges = np.append(edges[edges <= len(places)], len(places) + 1)
    pairs = [(a, b) for a, b in zip(edges, edges[1:], strict=False) if b > a]
    if len(pairs) > 1 and pairs[-1][1] - pairs[-1][0] < pairs[-2][1] - pairs[-2][0]:
        pairs[-2:] = [(pairs[-2][0], pairs[-1][1])]  # what is left over belongs to the last one
    x = np.array([(a + b - 1) / 2 for a, b in pairs])
    return x, np.array([places[a - 1 : b - 1].mean() for a, b in pairs])


def _figure(panels: int = 1):
    from matplotlib.figure import Figure

    size = (8, 4.5) if panels == 1 else (4 * panels, 3.8)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(1, panels, sharey=True)


def _length_axis(axes, rows: Sequence[dict]) -> None:
    from matplotlib.ticker import NullLocator

    lengths = sorted({row["length"] for row in rows})
    trained = sorted({row["train_length"] for row in rows})
    if len(lengths) == 1:  # of places: powers of two up to the longest
        lengths = [2**i for i in range(lengths[0].bit_length())]
    axes.set_xscale("log")
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    for length in trained:
        axes.axvline(length, color="0.6", linewidth=1, linestyle=":")
        axes.annotate(
            "trained length",
            (length, 0.985),
            xycoords=("data", "axes fraction"),
            xytext=(-3, 0),
            textcoords="offset points",
            rotation=90,
            va="top",
            ha="right",
            color="0.4",
            fontsize=8,
        )


def _plain_log_labels(axes) -> None:
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter() if high < 10 * low else NullFormatter())
    if low < 10 < high or high >= 10 * low:
        ticks = [m * 10**e for e in range(-1, 6) for m in (1, 2, 5)]
        axes.set_yticks([t for t in ticks if low <= t <= high])
        axes.yaxis.set_minor_formatter(NullFormatter())


def _labels(axes, protocol: str, y: str, x: str = "length (tokens)") -> None:
    axes.figure.suptitle(f"{protocol}: {protocols.find(protocol).title}", fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, color="0.92")


def _save(figure, axes, path: Path) -> Path:
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, fontsize=8, frameon=False, loc="outside right center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
