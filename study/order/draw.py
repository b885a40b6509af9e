"""Draw order.png, order beyond L against training steps and against the tokens between the two
settings, and law.png, order beside what maps of positions predict: python -m study.order.draw"""

from pathlib import Path

from matplotlib.axes import Axes

from posenc_jax import report
from posenc_jax.plots import style
from study.order import law
from study.order.tables import APART, ORDER, SEPARATED, grid, separated

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
# Methods with a map: colours, and places of the names.
MAPS = {
    "dca": ("#0072B2", (5.4, 0.52)),
    "self_extend:window=4": ("#D55E00", (2.7, 0.74)),
    "self_extend:window=16": ("#009E73", (4.15, 0.74)),
}


@style.styled()
def main() -> None:
    _law()
    figure, (left, right) = style.panels(1, 2, (11, 4.2))
    report.figure(
        grid(),
        {name: ORDER | {"name": name} for name in LINES},
        "step",
        title="NoPE passes extended RoPE by 1,200 steps",
        y="order beyond L at 512 tokens; 0.5: guesses",
        limits=(0.3, 1.02),
        looks=[{"color": colour} for colour in LINES.values()],
        seeds=True,
        axes=left,
    )
    left.axhline(0.5, color="0.5", linestyle=":")
    left.set_xlabel("training steps at L = 64")
    _by_separation(right)
    style.save(figure, Path(__file__).parent / "order.png")


def _law() -> None:
    """What a map predicts, as lines, and what RoPE with it does, as points with their intervals."""
    figure, (axes,) = style.panels(1, 1, (6.4, 3.6))
    measured, places = separated(grid()), range(len(APART))
    for method, (colour, (x, y)) in MAPS.items():
        name = law.name_of(method)
        axes.plot(places, law.by_separation(method), color=colour)
        own = measured[name]
        means = [one.mean for one in own]
        ends = [[one.mean - one.low for one in own], [one.high - one.mean for one in own]]
        axes.errorbar(places, means, ends, fmt="o", color=colour, markersize=5)
        side = "left" if method != "self_extend:window=4" else "right"
        axes.text(x, y, name.removeprefix("RoPE with "), color=colour, size=11, ha=side)
    axes.axhline(0.5, color="0.5", linestyle=":")
    axes.text(0, 0.47, "guessing", color="0.4", va="top", size=11)
    axes.set(ylim=(0.35, 1.04))
    axes.set_xticks(places, [one.partition("-")[0] for one in APART])
    axes.set_xlabel("tokens between the two values (1: adjacent), and more", size=11)
    axes.set_ylabel("share answered with\nthe last value", size=11)
    style.finish(
        figure, f"Maps of positions (lines) and order beyond L (points), {SEPARATED:,} steps"
    )
    style.save(figure, Path(__file__).parent / "law.png")


def _by_separation(axes: Axes) -> None:
    """Means over seeds by the tokens between the two settings, named where they are apart."""
    found = {name: own for name, own in separated(grid()).items() if name in LINES}
    means = {name: [one.mean for one in own] for name, own in found.items()}
    places = style.spaced([own[0] for own in means.values()], 0.036)
    for (name, own), place in zip(means.items(), places, strict=True):
        look = dict(color=LINES[name])
        axes.plot(range(len(APART)), own, "o-", markersize=3, **look)
        axes.plot([-0.5, 0], [place, own[0]], linewidth=0.5, **look)
        words = name.removeprefix("RoPE with ")
        axes.text(-0.6, place, words, va="center", ha="right", size=8, **look)
    axes.hlines(0.5, 0, len(APART) - 1, color="0.5", linestyle=":")
    axes.set(xlim=(-4.9, len(APART) - 0.7), ylim=(0.3, 1.02), yticks=[])
    axes.set_xticks(range(len(APART)), [one.partition("-")[0] for one in APART])
    axes.set_xlabel(f"tokens apart (1: adjacent), and more; after {SEPARATED:,} steps")
    title = "RoPE's extensions order only some separations"
    axes.set_title(title, loc="left", weight="bold")


if __name__ == "__main__":
    main()
