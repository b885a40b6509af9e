"""Pictures of what encodings look like without a model, and of a spectrum, bias or key terms."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from posenc_jax import composition, extensions
from posenc_jax.encoding import Encoding, chunk_of, trained_mask
from posenc_jax.evaluation import diagnostics
from posenc_jax.plots import style
from posenc_jax.plots.curves import Line, draw_lines
from posenc_jax.plots.heat import heat_maps
from posenc_jax.schemes.rope import RoPE
from posenc_jax.terminal import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTEXTS = (100, 1_000, 10_000)
CELLS = 200  # of a heat map, along each side
LOWEST = -40.0  # a bias below which no weight is left
DISTANCE = "distance (tokens)"


def title(encoding: Encoding, run: str | None) -> str:
    """Whose values a panel shows: those of a run, or the ones that training begins with."""
    if run is not None:
        return f"{encoding.name} of {run}"
    drawn = any(jax.tree.leaves(trained_mask(encoding)))
    return f"{encoding.name}: random initial values" if drawn else encoding.name


@style.styled
def reach(rope: RoPE) -> "Figure":
    """How large a score can be, against distance."""
    figure, panels = style.panels(1, len(CONTEXTS))
    for axes, context in zip(panels, CONTEXTS, strict=True):
        distances = np.unique(np.linspace(0, context, min(context + 1, 2_000)).round())
        axes.plot(distances, diagnostics.score_bound(rope, distances), color=_ROPE)
        axes.set(title=f"context of {context:,}", xlabel=DISTANCE, ylim=(0, 1.05))
    panels[0].set_ylabel("largest score over that at distance 0")
    figure.suptitle(f"RoPE: bound on the score, {_words(rope)}")
    return figure


def distances(rope: RoPE) -> "Figure":
    """The score of two equal vectors, by their places."""
    maps, spans = {}, {}
    for context in CONTEXTS:
        places = np.linspace(0, context - 1, min(CELLS, context))
        scores = diagnostics.score_of_equals(rope, places[:, None] - places[None, :])
        name = f"context of {context:,}"
        maps[name] = np.where(places[:, None] >= places[None, :], scores, np.nan)
        spans[name] = context
    title = f"RoPE: score of two equal vectors, {_words(rope)}"
    return heat_maps(maps, limits=(-1, 1), spans=spans, x="key", y="query", title=title)


def wavelengths(rope: RoPE, scale: float) -> "Figure":
    """The spectrum as trained and after every extension that changes frequencies by a scale."""
    ropes: dict[str, Any] = {"none": rope}
    for name in extensions.fitting(rope):
        record = extensions.records()[name]
        changes = record.kind.name == "rotation" and record.scale == "given"
        if name != "none" and changes and not record.needs_options:
            ropes[composition.with_scale(name, scale)] = extensions.extend(name, rope, scale)
    return spectrum(ropes, rope.train_length, {f"{scale:g} L": scale * rope.train_length})


@style.styled
def spectrum(
    ropes: Mapping[str, RoPE], trained: int, lengths: Mapping[str, float] | None = None
) -> "Figure":
    """Tokens per turn of every rotary pair, by method; each length is a dotted line."""
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = style.panels()
    lines = []
    for name, rope in ropes.items():
        look = style.look_of_method(composition.parts(name)[0].name)._asdict()
        for waves in diagnostics.spectrum(rope)[0]:
            listed = name not in {line.name for line in lines}
            lines.append(Line(name, range(len(waves)), list(waves), look, listed=listed))
    draw_lines(axes, lines)
    told = {"L: pairs above it make no full turn within the trained length": trained}
    for words, length in (told | dict(lengths or {})).items():
        axes.axhline(length, color="0.5", linestyle=":")
        at = dict(xycoords=("axes fraction", "data"), va="top", ha="right")
        style.annotate(axes, words, (0.99, length), (0, -2), **at)  # waves grow to the right
    axes.set(yscale="log", xlabel="rotary pair", ylabel="tokens per turn")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    def inverse(value):
        with np.errstate(divide="ignore"):
            return trained / value

    axes.secondary_yaxis("right", functions=(inverse, inverse)).set_ylabel("turns within L")
    figure.suptitle(f"rotary spectrum, {_words(next(iter(ropes.values())))}")
    style.legend(figure, axes)
    return figure


@style.styled
def biases(encodings: Mapping[str, Encoding], length: int) -> "Figure":
    """What every head adds to the scores, against distance; a panel per encoding and its title."""
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
    figure.suptitle("biases by head, the first in grey and the last in black; dotted: L")
    return figure


def similarities(encodings: Mapping[str, Encoding], length: int) -> "Figure":
    """How alike the vectors are that additive encodings add at two places, by its title."""
    maps = {
        title: diagnostics.similarity(encoding, min(length, encoding.reach or length))
        for title, encoding in encodings.items()
    }
    title = "cosine between the vectors added at two places"
    return heat_maps(maps, limits=(-1, 1), x="place", y="place", title=title)


def remapped(length: int, trained: int) -> "Figure":
    """The distance at which each query of a row sees each key, under every extension that moves."""
    records = extensions.records()
    names = [name for name, one in records.items() if one.kind.name == "distance"]
    tables = {name: extensions.distances(name, length, trained) for name in names}
    maps = {name: np.where(table < 0, np.nan, table) for name, table in tables.items()}
    spans = dict.fromkeys(maps, length)
    title = f"distance at which RoPE sees a key, L = {trained:,}; white: not seen"
    return heat_maps(maps, spans=spans, across=3, x="key", y="query", label="tokens", title=title)


@style.styled
def windows(encodings: Mapping[str, Encoding], layers: int, length: int) -> "Figure":
    """How far back each layer sees; a panel per encoding and its title, a bar per layer."""
    size = (4.4 * len(encodings), 1.6 + 0.26 * layers)
    figure, panels = style.panels(1, len(encodings), size)
    for axes, (title, encoding) in zip(panels, encodings.items(), strict=True):
        named = set()
        for index in range(layers):
            one = encoding.layer(index)
            seen = one.narrowed(None)
            sort, hatch = _sight(one)
            name = f"{one.name}, {sort}"
            axes.barh(
                index,
                length if seen is None else min(seen, length),
                color=style.look_of(one.name)[0],
                hatch=hatch,
                edgecolor="white",
                label=None if name in named else name,
            )
            named.add(name)
        axes.axvline(encoding.train_length, color="0.6", linestyle=":")
        axes.set(title=title, xlabel="tokens back", ylabel="layer", xlim=(0, length))
        axes.set_yticks(range(layers))
        axes.invert_yaxis()
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    figure.suptitle("how far back a layer sees, at most; dotted: L")
    return figure


def _sight(encoding: Encoding) -> tuple[str, str | None]:
    """What a layer sees, in words, and the hatch of its bar."""
    seen = encoding.narrowed(None)
    if seen is None:
        return "everything", "//"
    return ("its chunk", "..") if seen == chunk_of(encoding) else ("a window", None)


@style.styled
def gates(kept: np.ndarray, letters: Sequence[str], name: str) -> "Figure":
    """How much of the past each token keeps, by layer and head; letters name the tokens."""
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
    figure.colorbar(image, ax=panels, shrink=0.8, label="kept of the past")
    figure.suptitle(f"forget gates over a text, a row per head; {name}")
    return figure


@style.styled
def terms(found: Mapping[str, np.ndarray], name: str) -> "Figure":
    """The four terms of the first layer's scores, and the share of position in its keys."""
    figure, (left, right) = style.panels(1, 2, (9, 3.8))
    products = [key for key in found if "-" in key]
    heads = np.arange(len(found[products[0]]))
    for rank, key in enumerate(products):
        colour = ("#000000", "#D55E00", "#E69F00", "#0072B2")[rank]
        left.bar(heads + 0.2 * (rank - 1.5), found[key], 0.18, label=key, color=colour)
    left.set_ylabel("standard deviation among the keys of a query")
    left.set_ylim(0, 1.3 * max(found[key].max() for key in products))
    left.legend(ncols=2)
    right.bar(heads, found["position in the keys"], color=_ROPE)
    right.set(ylabel="share of the keys that is position", ylim=(0, 1))
    for axes in (left, right):
        axes.set_xticks(heads)
        axes.set_xlabel("head of the first layer")
    figure.suptitle(f"{name}: terms of the scores, part of the query - part of the key")
    return figure


_ROPE = style.ENCODINGS["rope"][0]


def _words(rope: RoPE) -> str:
    return f"{counted(rope.inv_freq.shape[-1], 'pair')}, L = {rope.train_length:,}"
