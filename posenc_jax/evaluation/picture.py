"""Perplexity against length."""

from collections.abc import Sequence
from pathlib import Path

# Okabe and Ito's colours, told apart by colour-blind readers, and a mark for print.
STYLES = [
    ("#000000", "o"),
    ("#0072B2", "s"),
    ("#D55E00", "^"),
    ("#009E73", "D"),
    ("#CC79A7", "v"),
    ("#E69F00", "P"),
    ("#56B4E9", "X"),
]


def nonoverlap(rows: Sequence[dict], path: Path) -> None:
    rows = [r for r in rows if r["protocol"] == "nonoverlap" and r["ppl"] is not None]
    if not rows:
        return
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, NullLocator, ScalarFormatter

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    series = dict.fromkeys((r["run"], r["encoding"], r["extension"], r["scale"]) for r in rows)
    several = len({run for run, *_ in series}) > 1
    for i, (run, encoding, extension, scale) in enumerate(series):
        colour, marker = STYLES[i % len(STYLES)]
        points = sorted(
            (r["length"], r["ppl"])
            for r in rows
            if (r["run"], r["extension"], r["scale"]) == (run, extension, scale)
        )
        label = encoding if extension == "none" else f"{encoding} + {extension}"
        label += f" (s = {scale:g})" if scale else ""
        style = "-" if i < len(STYLES) or not several else "--"
        axes.plot(*zip(*points, strict=True), style, color=colour, marker=marker, label=label)
    trained = rows[0]["train_length"]
    axes.axvline(trained, color="0.6", linewidth=1, linestyle=":")
    axes.annotate(
        "trained length",
        (trained, 0.99),
        xycoords=("data", "axes fraction"),
        rotation=90,
        va="top",
        ha="right",
        color="0.4",
        fontsize=8,
    )
    axes.set(xscale="log", yscale="log", xlabel="length (tokens)", ylabel="perplexity per token")
    lengths = sorted({r["length"] for r in rows})
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter() if _narrow(rows) else NullFormatter())
    axes.set_title("non-overlapping windows, the same targets at every length", fontsize=10)
    axes.grid(True, which="both", color="0.92")
    figure.legend(fontsize=8, frameon=False, loc="outside right center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _narrow(rows) -> bool:
    values = [r["ppl"] for r in rows]
    return max(values) < 10 * min(values)
