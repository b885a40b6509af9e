"""Draw memory.png, what a copy saves by the tokens back to it: python -m study.real.draw"""

from pathlib import Path

from posenc_jax.plots import style
from posenc_jax.report.frames import estimates
from study.cells import over_documents
from study.real.tables import BACK, ROW, SAVED, L, copies

PICTURE = Path(__file__).parent / "memory.png"
# Words and colours, the method that reaches farthest first.
NAMES = {
    "self_extend": ("Self-Extend", "#AA3377"),
    "yarn:2": ("YaRN by 2", "#009E73"),
    "ntk:2": ("NTK by 2", "#B87900"),
    "none": ("no extension", "#0072B2"),
    "streaming": ("streaming", "#555555"),
}
TOP = 3.4  # nats


@style.styled()
def main() -> None:
    figure, (axes,) = style.panels(1, 1, (6.4, 3.6))
    means = []
    for number, (method, (_, colour)) in enumerate(NAMES.items()):
        one = {"method": method, "length": ROW}
        own = estimates(
            copies(), one, [SAVED | {"back": back} for back in BACK], "nats", over_documents
        )
        means.append([saved.mean for saved in own])
        ends = [[abs(saved.mean - getattr(saved, end)) for saved in own] for end in ("low", "high")]
        places = [back + 45 * (number - 2) for back in BACK]  # else intervals hide each other
        axes.errorbar(places, means[-1], ends, fmt="o-", color=colour, markersize=4)
    heights = style.spaced([own[-1] / TOP for own in means], 0.085)
    for (name, colour), height in zip(NAMES.values(), heights, strict=True):
        axes.text(12_450, TOP * height, name, color=colour, va="center", size=11)
    axes.axvline(L, color="0.4", linestyle=":")
    axes.text(L + 60, TOP, f"L = {L:,}", color="0.4", va="top", size=11)
    axes.set(xlim=(1_800, 14_500), ylim=(-0.15, TOP))
    axes.set_xticks(BACK[:3] + (8_192, 10_240, 12_160))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("tokens back to the copy", size=11)
    axes.set_ylabel("nats per token\nthat a copy saves", size=11)
    axes.tick_params(labelsize=10)
    style.finish(figure, "How far back does SmolLM2-135M use a copy, without training?")
    style.save(figure, PICTURE)


if __name__ == "__main__":
    main()
