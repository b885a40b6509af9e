"""Draw field.png, found and order beyond L against training steps, of the encodings of 2026 beside
RoPE and NoPE, topk.png, both against the keys that a query attends to, and fade.png, found against
the distance in short and long rows: python -m study.field.draw"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc_jax.plots import style
from study.cells import seeds
from study.field.tables import KEYS, by_distance, grid, sharpened
from study.order.draw import by_steps
from study.order.tables import BUDGETS, L, measured, orders

HERE = Path(__file__).parent
LINES = {
    "NoPE": "#777777",
    "RoPE": "#000000",
    "PoPE": "#D55E00",
    "RoPE++": "#56B4E9",
    "retention": "#882255",
    "decay and NoPE": "#0072B2",
    "decay and RoPE": "#CC79A7",
}
EXTENDED = {
    "NoPE": "#777777",
    "RoPE with YaRN": "#000000",
    "PoPE with YaRN": "#D55E00",
    "PoPE with PI": "#E69F00",
    "RoPE with PI": "#009E73",
    "RoPE++ with YaRN": "#56B4E9",
    "retention with YaRN": "#882255",
}
FOUND = "found beyond L at 512 tokens; 0: guesses"
ORDER = "order beyond L at 512 tokens; 0.5: guesses"
SHARPENED = {
    "NoPE": "#777777",
    "random steps": "#332288",
    "RoPE": "#000000",
    "RoPE with YaRN": "#009E73",
    "PoPE": "#D55E00",
    "RoPE++": "#56B4E9",
    "decay and NoPE": "#0072B2",
    "FIRE": "#882255",
    "forget gates": "#661100",
    "CoPE": "#AA8800",
    "T5 bias": "#CC79A7",
    "ALiBi": "#E69F00",
}
FADING = {
    "RoPE": "#000000",
    "selective RoPE": "#D55E00",
    "random steps": "#0072B2",
    "forget gates": "#661100",
    "ALiBi": "#E69F00",
}


@style.styled()
def picture(name: str, found: Callable, order: Callable, titles: tuple[str, str], low: float):
    """What is found in the left panel, and its order, from `low` on, in the right one."""
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    found(left)
    left.set(ylim=(0, 1.02), ylabel=FOUND, title=titles[0])
    order(right)
    right.set(ylim=(low, 1.02), ylabel=ORDER, title=titles[1])
    style.save(figure, HERE / name)


@style.styled()
def fading() -> None:
    """Means over seeds, and the seeds, by the tokens to the setting; a panel per length of rows."""
    rows = by_distance()
    lengths = sorted(rows.length.unique())
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    panels = figure.subplots(1, len(lengths), sharey=True)
    for axes, length in zip(panels, lengths, strict=True):
        for name, colour in FADING.items():
            own = rows[(rows.name == name) & (rows.length == length)]
            means = own.groupby("farthest").found.mean()
            axes.plot(means.index, means, "-", color=colour, label=name)
            axes.plot(own.farthest, own.found, ".", color=colour, markersize=3, alpha=0.6)
        axes.axvline(L, color="0.5", linestyle=":")
        axes.set(xscale="log", xlim=(1.8, 5_000), title=f"rows of {length:,} tokens")
        axes.set_xticks([2**n for n in range(2, 13, 2)], [f"{2**n:,}" for n in range(2, 13, 2)])
        axes.minorticks_off()
        axes.set_xlabel("tokens to the setting, at most; dotted: L")
    panels[0].set(ylim=(-0.04, 1.02), ylabel="found; 0: guesses")
    panels[0].legend(loc="lower left")
    style.save(figure, HERE / "fade.png")


def _by_keys(axes: Axes, protocol: str, value: str) -> None:
    rows = measured(sharpened(), protocol)
    rows, ends = rows[rows.steps == BUDGETS[-1]], {}
    for name, colour in SHARPENED.items():
        own = rows[rows.name == name]
        found = [seeds(own[own["keys"] == keys], value) for keys in KEYS]
        if any(len(one) == 0 or np.isnan(one).any() for one in found):  # too few pairs
            continue
        means = [one.mean() for one in found]
        axes.plot(range(len(KEYS)), means, "-", color=colour)
        for place, one in enumerate(found):
            axes.plot([place] * len(one), one, ".", color=colour, markersize=4, alpha=0.6)
        ends[name] = means[-1]
    low, high = axes.get_ylim()
    for (name, mean), place in zip(
        ends.items(), style.spaced(list(ends.values()), 0.045 * (high - low)), strict=True
    ):
        axes.plot([2, 2.15], [mean, place], color=SHARPENED[name], linewidth=0.5)
        axes.text(2.18, place, name, color=SHARPENED[name], va="center", size=8)
    axes.set_xlim(-0.1, 3.1)
    axes.set_xticks(range(len(KEYS)), ["all", *KEYS[1:]])
    axes.set_xlabel("keys of the highest logits that a query attends to; 9,600 steps")


if __name__ == "__main__":
    picture(
        "field.png",
        lambda axes: by_steps(axes, measured(grid(), "found"), "found", LINES),
        lambda axes: by_steps(axes, orders(grid()), "order", EXTENDED),
        (
            "As trained: PoPE finds more than RoPE, hybrids little",
            "Extended alike, PoPE and RoPE++ order much as RoPE",
        ),
        low=0.5,
    )
    picture(
        "topk.png",
        lambda axes: _by_keys(axes, "found", "found"),
        lambda axes: _by_keys(axes, "last_of_two", "order"),
        (
            "Fewer keys bring back little of what was not found",
            "They restore the order of NoPE and random steps",
        ),
        low=0.35,
    )
    fading()
