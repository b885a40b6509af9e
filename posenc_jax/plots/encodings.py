"""Pictures of encodings: spectra, biases, remapped distances, gates, and attention beyond L."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from posenc_jax import composition, extensions
from posenc_jax.display import Line
from posenc_jax.encoding import Encoding, trained_mask
from posenc_jax.evaluation import diagnostics
from posenc_jax.evaluation.statistics import smooth
from posenc_jax.plots import style
from posenc_jax.plots.curves import draw_lines, over_tokens
from posenc_jax.runtime.terminal import counted
from posenc_jax.schemes.rope import RoPE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOWEST = -40.0  # lowest bias shown; weights below it are negligible
DISTANCE = "distance (tokens)"


def title(encoding: Encoding, run: str | None) -> str:
    """Title of a panel: the encoding, and the run or random initialisation of its values."""
    if run is not None:
        return f"{encoding.name} of {run}"
    trained = any(jax.tree.leaves(trained_mask(encoding)))
    return f"{encoding.name}: random initial values" if trained else encoding.name


def wavelengths(rope: RoPE, scale: float) -> "Figure":
    """Spectrum as trained and after every extension that changes frequencies by a scale."""
    ropes: dict[str, Any] = {"none": rope}
    for name in extensions.fitting(rope):
        record = extensions.records()[name]
        changes = record.kind.name == "rotation" and record.scale == "given"
        if name != "none" and changes and not record.needs_options:
            ropes[composition.with_scale(name, scale)] = extensions.extend(name, rope, scale)
    return spectrum(ropes, rope.train_length, {f"{scale:g} L": scale * rope.train_length})


@style.styled()
def spectrum(
    ropes: Mapping[str, RoPE], trained: int, lengths: Mapping[str, float] | None = None
) -> "Figure":
    """Tokens per turn of every rotary pair, by method; dotted lines mark lengths."""
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = style.panels()
    lines = []
    for name, rope in ropes.items():
        look = style.look_of_method(composition.parts(name)[0].name)
        for waves in diagnostics.spectrum(rope)[0]:
            listed = name not in {line.name for line in lines}
            lines.append(Line(name, range(len(waves)), list(waves), look, listed=listed))
    draw_lines(axes, lines)
    marked = {"L: pairs above make no full turn within the trained length": trained}
    for words, length in (marked | dict(lengths or {})).items():
        axes.axhline(length, color="0.5", linestyle=":")
        anchor = dict(xycoords=("axes fraction", "data"), va="top", ha="right")
        style.annotate(axes, words, (0.99, length), (0, -2), **anchor)  # waves grow to the right
    axes.set(yscale="log", xlabel="rotary pair", ylabel="tokens per turn")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    def inverse(value):
        with np.errstate(divide="ignore"):
            return trained / value

    axes.secondary_yaxis("right", functions=(inverse, inverse)).set_ylabel("turns within L")
    title = f"rotary spectrum, {_words(next(iter(ropes.values())))}"
    style.finish(figure, title)
    return figure


@style.styled()
def biases(encodings: Mapping[str, Encoding], length: int) -> "Figure":
    """Bias of every head against distance; one panel per title and encoding."""
    across = min(3, len(encodings))
    down = -(-len(encodings) // across)
    figure, panels = style.panels(down, across, (3.1 * across, 3.1 * down))
    for axes, (title, encoding) in zip(panels, encodings.items(), strict=False):
        heads = diagnostics.bias_by_distance(encoding, length)
        assert heads is not None
        shades = style.spread(len(heads))
        for head, bias in enumerate(heads):
            axes.plot(np.arange(length), bias, color=shades[head])
        axes.axvline(encoding.train_length, color="0.6", linestyle=":")
        low, high = max(heads.min(), LOWEST), heads.max()
        room = 0.05 * (high - low) or 1.0
        axes.set(title=title, xlabel=DISTANCE, ylim=(low - room, high + room))
    for axes in panels[len(encodings) :]:
        axes.set_visible(False)
    for axes in panels[::across]:
        axes.set_ylabel("added to the score")
    figure.suptitle("biases by head, from grey (first) to black (last); dotted: L")
    return figure


@style.styled()
def remapped(length: int, trained: int) -> "Figure":
    """Distance at which each query of a row sees each key, under every remapping extension, on one
    scale of colours."""
    records = extensions.records()
    names = [name for name, record in records.items() if record.kind.name == "distance"]
    tables = {name: extensions.distances(name, length, trained) for name in names}
    most = max(table.max() for table in tables.values())
    across = 3
    down = -(-len(tables) // across)
    figure, panels = style.panels(down, across, (4.2 * across, 3.8 * down))
    figure.set_layout_engine("compressed", h_pad=0.08)  # keeps panels square
    image: Any = None
    for axes, (name, table) in zip(panels, tables.items(), strict=False):
        axes.grid(False)
        seen = np.where(table < 0, np.nan, table)
        image = axes.imshow(seen, extent=(0, length, length, 0), vmin=0, vmax=most)
        axes.set(title=name, xlabel="key", ylabel="query")
        axes.set_xlim(-0.02 * length, length)  # keeps the first keys clear of the axis
    figure.colorbar(image, ax=panels, shrink=0.8, label="tokens")
    figure.suptitle(f"distance at which RoPE sees a key, L = {trained:,}; white: not visible")
    return figure


@style.styled()
def gates(kept: np.ndarray, letters: Sequence[str], name: str) -> "Figure":
    """Share of the past that each token keeps, by layer and head; letters name the tokens."""
    layers, heads, length = kept.shape
    size = (max(6.0, 0.13 * length), 1.2 + layers * (0.5 + 0.2 * heads))
    figure, panels = style.panels(layers, 1, size, sharex=True)
    image: Any = None
    for index, axes in enumerate(panels):
        axes.grid(False)
        image = axes.imshow(kept[index], vmin=0, vmax=1, cmap="viridis", aspect="auto")
        axes.set(ylabel=f"layer {index}")
        axes.set_yticks(range(heads))
    panels[-1].set_xticks(range(length), letters, fontsize=7)
    panels[-1].set_xlabel("token")
    figure.colorbar(image, ax=panels, shrink=0.8, label="share of the past kept")
    figure.suptitle(f"forget gates over a text, one row per head; {name}")
    return figure


@style.styled()
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
    over_tokens(axes, lines, [trained], [longest], step=2)
    axes.set(xlabel="distance + 1 (tokens)", ylabel="added to the logit")
    if max(map(np.max, curves.values())) - min(map(np.min, curves.values())) > 20:
        axes.set_yscale("symlog", linthresh=1)
    title = f"{layer}bias by distance for the last of {longest:,} queries"
    if len(curves) > 1:
        title += f"; dashed: in a window of {min(curves):,}, where it differs"
    style.finish(figure, title)
    return figure


@style.styled()
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
            smoothed = [smooth(heads.mean(axis=0)) for heads in values]
            lines = [
                Line(f"layer {layer}", list(x), list(y), dict(linewidth=1))
                for layer, (x, y) in enumerate(smoothed)
            ]
            over_tokens(axes, lines, [n for n in [trained] if n <= length], [length], step=2)
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
    style.finish(figure)
    return figure


def _words(rope: RoPE) -> str:
    return f"{counted(rope.inv_freq.shape[-1], 'pair')}, L = {rope.train_length:,}"
