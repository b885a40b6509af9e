"""Draw order.png, order beyond L against training steps and against the tokens between the two
settings: python -m study.order.draw"""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc_jax.plots import style
from study.cells import seeds
from study.order.tables import APART, BUDGETS, SEPARATED, grid, orders, separated

PICTURE = Path(__file__).parent / "order.png"
LINES = {
    "NoPE with log-n": "#000000",
    "NoPE": "#777777",
    "CoPE": "#AA8800",
    "forget gates": "#661100",
    "FIRE": "#882255",
    "RoPE with PI": "#D55E00",
    "RoPE with YaRN": "#009E73",
    "RoPE with Self-Extend, window 4": "#CC79A7",
    "RoPE with DCA": "#56B4E9",
    "T5 bias": "#0072B2",
}
GAP = 0.036  # between two names, in order


@style.styled()
def main() -> None:
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    by_steps(left, orders(grid()), "order", LINES)
    left.axhline(0.5, color="0.5", linestyle=":")
    left.set(ylim=(0.3, 1.02), ylabel="order beyond L at 512 tokens; 0.5: guesses")
    left.set_title("NoPE passes extended RoPE by 1,200 steps")
    _by_separation(right)
    style.save(figure, PICTURE)


def by_steps(axes: Axes, rows: pd.DataFrame, value: str, lines: dict[str, str]) -> None:
    """Means over seeds, and the seeds, where every seed holds enough pairs."""
    ends = {}
    for name, colour in lines.items():
        own = rows[rows.name == name]
        at = {steps: seeds(own[own.steps == steps], value) for steps in BUDGETS}
        most = max(map(len, at.values()))
        known = {steps: one for steps, one in at.items() if len(one) == most > 0}
        if not known:
            continue
        means = [one.mean() for one in known.values()]
        axes.plot(list(known), means, "-", color=colour)
        for steps, one in known.items():
            axes.plot([steps] * len(one), one, ".", color=colour, markersize=4, alpha=0.6)
        ends[name] = max(known), means[-1]
    places = style.spaced([value for _, value in ends.values()], GAP)
    for (name, (steps, mean)), place in zip(ends.items(), places, strict=True):
        axes.plot([steps, 1.2 * steps], [mean, place], color=lines[name], linewidth=0.5)
        axes.text(1.22 * steps, place, name, color=lines[name], va="center", size=8)
    axes.set(xscale="log", xlim=(550, 60_000), xlabel="training steps at L = 64")
    axes.set_xticks(BUDGETS, [f"{steps:,}" for steps in BUDGETS])
    axes.minorticks_off()


def _by_separation(axes: Axes) -> None:
    """Means over seeds by the tokens between the two settings."""
    found = {name: own for name, own in separated(grid()).items() if name in LINES}
    means = {name: [one.mean() for one in by_apart] for name, by_apart in found.items()}
    places = style.spaced([own[0] for own in means.values()], GAP)
    for (name, own), place in zip(means.items(), places, strict=True):
        axes.plot(range(len(APART)), own, "o-", color=LINES[name], markersize=3)
        axes.plot([-0.5, 0], [place, own[0]], color=LINES[name], linewidth=0.5)
        axes.text(
            -0.6,
            place,
            name.removeprefix("RoPE with "),
            color=LINES[name],
            va="center",
            ha="right",
            size=8,
        )
    axes.hlines(0.5, 0, len(APART) - 1, color="0.5", linestyle=":")
    axes.set(xlim=(-4.9, len(APART) - 0.7), ylim=(0.3, 1.02), yticks=[])
    axes.set_xticks(range(len(APART)), [one.partition("-")[0] for one in APART])
    axes.set_xlabel(f"tokens apart (1: adjacent), and more; after {SEPARATED:,} steps")
    axes.set_title("RoPE's extensions order only some separations")


if __name__ == "__main__":
    main()
