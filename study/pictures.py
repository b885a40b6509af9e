"""Pictures of the pages: lines with 95% intervals over seeds, each named at its right end."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posenc_jax.plots import style
from study.cells import half

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (6.4, 4.2)  # inches of a panel and the names beside it
GAP = 0.055  # between names, as a share of the axis
LIKE = {"fox": "kerple_power", "hybrid": "sinusoidal"}  # FIRE and T5 have colours like theirs


class Drawn(NamedTuple):
    name: str
    values: np.ndarray  # [points, seeds]; one seed has no interval
    colour: str
    dashes: str = "-"


def of(encoding: str, name: str, values: Sequence[np.ndarray], extended: bool = False) -> Drawn:
    """A line in the colour of its encoding, dashed if it is extended."""
    colour, _ = style.look_of(LIKE.get(encoding, encoding))
    return Drawn(name, np.stack(values), colour, "--" if extended else "-")


def named_lines(axes: "Axes", places: Sequence[float], lines: Sequence[Drawn]) -> None:
    """Draw lines, then their names at their ends, moved apart where they would overlap."""
    for line in lines:
        means = line.values.mean(axis=1)
        axes.plot(places, means, color=line.colour, linestyle=line.dashes, linewidth=1.6)
        if line.values.shape[1] > 2:
            bars = [half(seeds) for seeds in line.values]
            axes.errorbar(places, means, bars, color=line.colour, linestyle="none", capsize=2)
    axes.set_xlim(*axes.get_xlim())
    axes.set_ylim(*axes.get_ylim())
    ends = [[places[-1], line.values[-1].mean()] for line in lines]
    heights = axes.transAxes.inverted().transform(axes.transData.transform(ends))[:, 1]
    places_of_names = style.spaced(heights.clip(0, 0.95).tolist(), GAP)
    for line, height in zip(lines, places_of_names, strict=True):
        words = dict(xycoords="axes fraction", va="center", fontsize=8, color=line.colour)
        axes.annotate(line.name, (1.02, height), annotation_clip=False, **words)


def claim(axes: "Axes", words: str, letters: int = 78) -> None:
    """Write a claim above its picture."""
    axes.set_title(textwrap.fill(words, letters), loc="left", fontsize=10)
