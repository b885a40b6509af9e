"""Draw memory.png, what methods save by a copy beyond L against what they lose on books:
python -m study.real.draw"""

from pathlib import Path

from posenc_jax.plots import style
from posenc_jax.report.frames import estimates
from study.cells import over_documents
from study.real.tables import LOST, SAVED, memory

PICTURE = Path(__file__).parent / "memory.png"
# Words, colours, and where the words begin or end beside the point.
NAMES = {
    "yarn:2": ("YaRN", "#009E73", (8, 5)),
    "self_extend": ("Self-Extend", "#AA3377", (-8, 5)),
    "ntk:2": ("NTK", "#B87900", (8, 5)),
    "streaming": ("Streaming: reads the last L only", "#555555", (8, -2)),
    "none": ("RoPE alone", "#0072B2", (0, 12)),
}


@style.styled()
def main() -> None:
    figure, (axes,) = style.panels(1, 1, (6.4, 3.6))
    for method, (name, colour, offset) in NAMES.items():
        one = {"method": method}
        lost, saved = estimates(memory(), one, [LOST, SAVED], "nats", over_documents)
        axes.hlines(saved.mean, lost.low, lost.high, color=colour)
        axes.vlines(lost.mean, saved.low, saved.high, color=colour)
        axes.plot(lost.mean, saved.mean, "o", color=colour)
        ends = {-1: (lost.low, "right"), 0: (lost.mean, "center"), 1: (lost.high, "left")}
        x, side = ends[(offset[0] > 0) - (offset[0] < 0)]
        words = dict(va="center", ha=side, color=colour)
        axes.annotate(name, (x, saved.mean), offset, textcoords="offset points", **words)
    axes.set(xlim=(-0.25, 0.85), ylim=(-0.2, 3.0))
    axes.set_xlabel("loss added on books to that of a row of L, nats per token (left is better)")
    axes.set_ylabel("loss saved by a copy beyond L,\nnats per token (up is better)")
    style.finish(figure, axes, "Equal perplexity, unequal memory: SmolLM2 at 1.5 L")
    style.save(figure, PICTURE)


if __name__ == "__main__":
    main()
