"""Draw what a copy saves by the tokens back to it, and which share of it is kept in rows of L:
python -m study.real.draw"""

from pathlib import Path
from typing import Any

from posenc_jax.evaluation.protocols.copies import USABLE
from posenc_jax.plots import style
from posenc_jax.report.frames import estimates
from study.cells import over_documents
from study.real import reach
from study.real.tables import BACK, ROW, SAVED, L, copies

HERE = Path(__file__).parent
# Words and colours, the method that reaches farthest first.
NAMES = {
    "self_extend": ("Self-Extend", "#AA3377"),
    "yarn:2": ("YaRN by 2", "#009E73"),
    "ntk:2": ("NTK by 2", "#B87900"),
    "none": ("no extension", "#0072B2"),
    "streaming": ("streaming", "#555555"),
}
TOP = 3.4  # nats
REACH = {"yarn:1.5": ("YaRN by 1.5", "#009E73"), "none": NAMES["none"]}


@style.styled()
def memory() -> None:
    figure, (axes,) = style.panels(1, 1, (6.4, 3.6))
    means = []
    for number, (method, (_, colour)) in enumerate(NAMES.items()):
        one = {"method": method, "length": ROW}
        own = estimates(
            copies(), one, [SAVED | {"back": back} for back in BACK], "nats", over_documents
        )
        places = [back + 45 * (number - 2) for back in BACK]  # else intervals hide each other
        means.append(_line(axes, places, own, colour))
    heights = style.spaced([own[-1] / TOP for own in means], 0.085)
    for (name, colour), height in zip(NAMES.values(), heights, strict=True):
        axes.text(12_450, TOP * height, name, color=colour, va="center", size=11)
    axes.axvline(L, color="0.4", linestyle=":")
    axes.text(L + 60, TOP, f"L = {L:,}", color="0.4", va="top", size=11)
    axes.set(xlim=(1_800, 14_500), ylim=(-0.15, TOP))
    axes.set_xticks(BACK[:3] + (8_192, 10_240, 12_160))
    axes.set_ylabel("nats per token\nthat a copy saves", size=11)
    _finish(axes)
    style.finish(figure, "How far back does SmolLM2-135M use a copy, without training?")
    style.save(figure, HERE / "memory.png")


@style.styled()
def shares() -> None:
    figure, panels = style.panels(1, 2, (9.4, 3.6))
    names = (("smollm2", "SmolLM2-135M", L), (reach.GEMMA, "Gemma 3 270M", reach.GEMMA_L))
    for axes, (model, title, length) in zip(panels, names, strict=True):
        ends = []
        for number, method in enumerate(REACH):
            row, colour = reach.measured(model)[method, length], REACH[method][1]
            places = [back + length * number // 180 for back in row.distances]
            own = [row.share(back) for back in row.distances]
            ends.append(_line(axes, places, own, colour)[-1])
        for (name, colour), height in zip(REACH.values(), style.spaced(ends, 0.09), strict=True):
            axes.text(1.02 * length, height, name, color=colour, va="center", size=11)
        axes.axvline(length, color="0.4", linestyle=":")
        axes.axhline(USABLE, color="0.4", linewidth=1)
        words = dict(color="0.4", va="top", ha="right", size=11)
        axes.text(0.99 * length, 1.18, f"L = {length:,}", **words)
        axes.set(xlim=(0, 1.42 * length), ylim=(-0.04, 1.18), title=title)
        axes.set_xticks([length // 4, length // 2, 3 * length // 4, length])
        _finish(axes)
    panels[0].set_ylabel("share kept of what\na near copy saves", size=11)
    style.finish(figure, "How much of its own context does a model read, without training?")
    style.save(figure, HERE / "reach.png")


def _line(axes: Any, places: list[int], own: list[Any], colour: str) -> list[float]:
    means = [one.mean for one in own]
    ends = [[abs(one.mean - getattr(one, end)) for one in own] for end in ("low", "high")]
    axes.errorbar(places, means, ends, fmt="o-", color=colour, markersize=4)
    return means


def _finish(axes: Any) -> None:
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("tokens back to the copy", size=11)
    axes.tick_params(labelsize=10)


if __name__ == "__main__":
    memory()
    shares()
