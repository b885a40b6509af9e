"""Draw memory.png, what methods save by a copy beyond L against what they lose on books:
python -m study.real.draw"""

from pathlib import Path

from posenc_jax.plots import style
from study.real.tables import memory

PICTURE = Path(__file__).parent / "memory.png"
# Words, and on which side of their point.
NAMES = {
    "yarn:2": ("YaRN", 1),
    "self_extend": ("Self-Extend", -1),
    "ntk:2": ("NTK", 1),
    "streaming": ("streaming, which reads the last L alone", 1),
    "none": ("RoPE alone", -1),
}


@style.styled
def main() -> None:
    figure, (axes,) = style.panels(1, 1, (6.4, 3.6))
    for method, (name, side) in NAMES.items():
        lost, saved = memory(method)
        colour = style.look_of(method.partition(":")[0], style.EXTENSIONS)[0]
        axes.hlines(saved.mean, lost.low, lost.high, color=colour)
        axes.vlines(lost.mean, saved.low, saved.high, color=colour)
        axes.plot(lost.mean, saved.mean, "o", color=colour)
        words = dict(va="center", color=colour, ha="left" if side > 0 else "right")
        at = (lost.high if side > 0 else lost.low, saved.mean)
        axes.annotate(name, at, (8 * side, 4), textcoords="offset points", **words)
    axes.set(xlim=(-0.25, 0.85), ylim=(-0.2, 3.0))
    axes.set_xlabel("loss added on books, nats per token")
    axes.set_ylabel("loss saved by a copy beyond L, nats per token")
    style.finish(figure, axes, "Equal perplexity, unequal memory")
    style.save(figure, PICTURE)


if __name__ == "__main__":
    main()
