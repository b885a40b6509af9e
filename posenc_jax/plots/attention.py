"""Pictures of position inside a run: the bias of its heads, and its attention beyond L."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posenc_jax.evaluation.statistics import smooth
from posenc_jax.lines import Line
from posenc_jax.plots import style
from posenc_jax.plots.curves import draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style.styled
def bias(curves: Mapping[int, np.ndarray], trained: int) -> "Figure":
    """Bias of every head against distance, in windows of several lengths: [H, length] each."""
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
    title = f"bias by distance for the last of {longest:,} queries"
    if len(curves) > 1:
        title += f"; dashed: in a window of {min(curves):,}, where it differs"
    figure.suptitle(title)
    style.legend(figure, axes)
    return figure


@style.styled
def attention(by_method: Mapping[str, Any], trained: int) -> "Figure":
    """Attention beyond L and its entropy against the query, by method: means over heads.

    Each method has `beyond` and `entropy`, both [layers, H, T].
    """
    figure, panels = style.panels(2, len(by_method), sharey="row")
    top, bottom = panels[: len(by_method)], panels[len(by_method) :]
    for upper, lower, (name, means) in zip(top, bottom, by_method.items(), strict=True):
        length = means.beyond.shape[-1]
        for axes, values in ((upper, means.beyond), (lower, means.entropy)):
            for layer, heads in enumerate(values):
                look = dict(color=f"C{layer % 10}", linewidth=1)
                x, y = smooth(heads.mean(axis=0))
                draw_lines(axes, [Line(f"layer {layer}", list(x), list(y), look)])
            style.length_axis(axes, [length], [trained], step=2)
        places = np.arange(1, length + 1)
        lower.plot(places, np.log(places), color="0.3", linestyle=":", label="uniform attention")
        lower.set_xlabel("position of the query")
        upper.set(title=name, ylim=(-0.02, 1.02))
    top[0].set_ylabel("attention beyond L")
    bottom[0].set_ylabel("entropy of attention (nats)")
    style.legend(figure, bottom[-1])
    return figure
