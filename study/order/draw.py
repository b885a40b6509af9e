"""Draw order.png, order beyond L against training steps, and what is left of it with a key hidden:
python -m study.order.draw"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc_jax.plots import style
from study.cells import half, seeds
from study.order.tables import BUDGETS, FAR, NOTHING, OLDER, L, knocked_out, orders

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
    "RoPE": "#0072B2",
}
BARS = [("NoPE", L), ("RoPE", L), ("RoPE with YaRN", FAR), ("FIRE", FAR), ("forget gates", FAR)]
APART = 0.036  # of two names, in order


@style.styled
def main() -> None:
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
    _by_steps(left)
    _hidden(right)
    style.save(figure, PICTURE)


def _by_steps(axes: Axes) -> None:
    """Means with 95% intervals over seeds, where every seed holds enough pairs."""
    order, ends = orders(), {}
    for name, colour in LINES.items():
        own = order[order.name == name]
        by_steps = [seeds(own[own.steps == steps], "order") for steps in BUDGETS]
        most = max(map(len, by_steps))
        known = [
            steps for steps, one in zip(BUDGETS, by_steps, strict=True) if len(one) == most > 0
        ]
        if not known:
            continue
        values = [one for one in by_steps if len(one) == most]
        means, halves = (np.array([of(one) for one in values]) for of in (np.mean, half))
        axes.plot(known, means, "o-", color=colour, markersize=3)
        low, high = means - halves, np.minimum(means + halves, 1)
        axes.fill_between(known, low, high, color=colour, alpha=0.1, linewidth=0)
        ends[name] = known[-1], means[-1]
    places = style.spaced([value for _, value in ends.values()], APART)
    for (name, (steps, _)), place in zip(ends.items(), places, strict=True):
        axes.text(1.1 * steps, place, name, color=LINES[name], va="center", size=8)
    axes.axhline(0.5, color="0.5", linestyle=":")
    axes.set(xscale="log", xlim=(550, 36_000), ylim=(0.4, 1.02))
    axes.set_xticks(BUDGETS, [f"{steps:,}" for steps in BUDGETS])
    axes.minorticks_off()
    axes.set(xlabel="training steps at L = 64", ylabel="order beyond L at 512 tokens; 0.5: guesses")
    axes.set_title("NoPE learns to order beyond L early, extended RoPE late")


def _hidden(axes: Axes) -> None:
    """Order as it is (wide) and with the older setting hidden from the last one (narrow), and the
    seeds of both."""
    rows, place, ticks = knocked_out(), 0.0, []
    for name, length in BARS:
        for steps in (600, 2_400, 9_600):
            own = rows[(rows.name == name) & (rows.length == length) & (rows.steps == steps)]
            if own.empty:
                continue
            for hidden, height, colour in ((NOTHING, 0.8, "0.85"), (OLDER, 0.4, LINES[name])):
                values = seeds(own[own.hidden == hidden], "order")
                axes.barh(place, values.mean() - 0.5, height, 0.5, color=colour)
                edge = place + 0.3 * (hidden == NOTHING)
                axes.plot(values, np.full(len(values), edge), "k.", markersize=3)
            ticks.append((place, f"{name} at {length}, {steps:,} steps"))
            place += 1
        place += 0.5
    axes.set_yticks(*zip(*ticks, strict=True))
    axes.invert_yaxis()
    axes.set(xlim=(0.45, 1.02), xlabel="order; narrow: older setting hidden")
    axes.set_title("RoPE: position first, content later")


if __name__ == "__main__":
    main()
