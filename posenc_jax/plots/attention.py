"""Pictures of position inside a run: the bias of its heads, and its attention beyond L."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posenc_jax.display import Line
from posenc_jax.evaluation.statistics import smooth
from posenc_jax.plots import style
from posenc_jax.plots.curves import draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style.styled
def bias(curves: Mapping[int, np.ndarray], trained: int, layer: str = "") -> "Figure":
    """Bias of every head against distance, in windows of several lengths: [H, length] each.

    `layer` begins the title where layers differ."""
    longest = max(curves)
    figure, (axes,) = style.panels()
    lines = []
    for length, heads in curves.items():
        for head, values in enumerate(heads):
            look = dict(color=f"C{head % 10}", linestyle="-" if length == longest else "--")
            listed = length == longest
            distances = range(1, length + 1)
            lines.append(Line(f"head {head}", distances, list(values), look, listed=listed))
    draw_lines(axes, lines)
    style.length_axis(axes, [longest], [trained], step=2)
    axes.set(xlabel="distance + 1 (tokens)", ylabel="added to the logit")
    if max(map(np.max, curves.values())) - min(map(np.min, curves.values())) > 20:
        axes.set_yscale("symlog", linthresh=1)
    title = f"{layer}bias by distance for the last of {longest:,} queries"
    if len(curves) > 1:
        title += f"; dashed: in a window of {min(curves):,}, where it differs"
    figure.suptitle(title)
    style.legend(figure, axes)
    return figure


@style.styled
def attention(by_method: Mapping[str, Any], trained: int) -> "Figure":
    """Attention beyond L, on token 0 and its entropy by query and method: means over heads,
    and of the head that gives token 0 most.

    Each method has `beyond`, `first` and `entropy`, all [layers, H, T].
    """
    columns = len(by_method)
    figure, panels = style.panels(3, columns, sharey="row")
    rows = panels[:columns], panels[columns : 2 * columns], panels[2 * columns :]
    for upper, middle, lower, (name, means) in zip(*rows, by_method.items(), strict=True):
        length = means.beyond.shape[-1]
        for axes, values in ((upper, means.beyond), (middle, means.first), (lower, means.entropy)):
            for layer, heads in enumerate(values):
                look = dict(color=f"C{layer % 10}", linewidth=1)
                x, y = smooth(heads.mean(axis=0))
                draw_lines(axes, [Line(f"layer {layer}", list(x), list(y), look)])
            style.length_axis(axes, [length], [n for n in [trained] if n <= length], step=2)
        for layer, heads in enumerate(means.first):
            x, y = smooth(heads[heads[:, length // 2 :].mean(axis=1).argmax()])
            middle.plot(x, y, color=f"C{layer % 10}", linewidth=0.7, linestyle="--")
        places = np.arange(1, length + 1)
        lower.plot(places, np.log(places), color="0.3", linestyle=":", label="uniform attention")
        lower.plot([], [], color="0.3", linewidth=0.7, linestyle="--", label="largest head")
        lower.set_xlabel("position of the query")
        upper.set(title=name, ylim=(-0.02, 1.02))
        middle.set_ylim(-0.02, 1.02)
    for row, words in zip(
        rows,
        ("attention beyond L", "attention on token 0", "entropy of attention (nats)"),
        strict=True,
    ):
        row[0].set_ylabel(words)
    style.legend(figure, rows[-1][-1])
    return figure
