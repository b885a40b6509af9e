"""Draw order.png, order beyond L against training steps and against the tokens between the two
settings: python -m study.order.draw"""

from pathlib import Path

from matplotlib.axes import Axes

from posenc_jax import report
from posenc_jax.plots import style
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


@style.styled()
def main() -> None:
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
