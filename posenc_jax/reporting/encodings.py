"""Pictures of what encodings look like without a model, and of how much of the keys is position."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import extensions
from posenc_jax.encoding import Encoding
from posenc_jax.errors import ConfigError
from posenc_jax.evaluation.picture import EXTENSIONS, look_of
from posenc_jax.schemes.rope import RoPE

CONTEXTS = (100, 1_000, 10_000)
CELLS = 200  # of a heat map, along each side
NOTHING = -40.0  # a bias below which no weight is left


def score_bound(rope: RoPE, distances: np.ndarray) -> np.ndarray:
    """How large a score can be at a distance, over its bound at distance 0: Su et al. 2021, 3.4.3.

    The mean length of the partial sums of exp(i d theta_j).
    """
    angles = np.asarray(distances, np.float64)[:, None] * np.asarray(rope.inv_freq, np.float64)
    partial = np.abs(np.cumsum(np.exp(1j * angles), axis=1)).mean(axis=1)
    return partial / (np.arange(angles.shape[1]) + 1).mean()


def score_of_equals(rope: RoPE, distances: np.ndarray) -> np.ndarray:
    """q . k over |q|^2 where q and k are the same before they are turned, all entries alike."""
    angles = np.asarray(distances, np.float64)[..., None] * np.asarray(rope.inv_freq, np.float64)
    return np.cos(angles).mean(axis=-1)


def similarity(encoding: Encoding, length: int) -> np.ndarray:  # [length, length]
    """Cosines between the vectors that are added at two places."""
    nothing = jnp.zeros((1, length, encoding.dims.width))
    added = np.asarray(encoding.embed(nothing, jnp.arange(length))[0], np.float64)
    added /= np.linalg.norm(added, axis=1, keepdims=True)
    return added @ added.T


def bias_by_head(encoding: Encoding, length: int) -> np.ndarray:  # [H, length]
    """What the last query of a row adds to its scores, by distance."""
    positions = jnp.arange(length)
    bias = encoding.bias(positions[-1:], positions)
    return np.asarray(bias, np.float64)[..., 0, ::-1]


def terms(model, encoding: Encoding, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """The four terms of the first layer's scores, q . k / sqrt(K): [H] of each, over causal pairs.

    (x + p_m) W_q . (x + p_n) W_k, where x is the token and p its position, both divided by the same
    norm, so that the terms add up to the scores. A value is the spread of a term among the keys of
    a query: what is the same for all of them moves no attention.
    """
    if (model.config.norm, model.config.norm_place) != ("rms", "pre"):
        raise ConfigError("the four terms are those of a model with norm='rms', norm_place='pre'")
    length = tokens.shape[1]
    positions = jnp.arange(length)
    x = model.embed(jnp.asarray(tokens))  # [B, T, D]
    placed = encoding.embed(x, positions)
    position = jnp.broadcast_to(encoding.embed(jnp.zeros_like(x), positions), x.shape)
    block = jax.tree.map(lambda leaf: leaf[0], model.blocks)
    # RMSNorm is linear but for its divisor, which comes from the sum of both.
    norm = block.attention_norm
    scale = norm.scale[...][None, None] / jnp.sqrt(
        jnp.mean(placed**2, -1, keepdims=True) + norm.epsilon
    )
    parts = {"content": (placed - position) * scale, "position": position * scale}
    heads, size = model.config.heads, model.config.head_size

    def split(x, kernel):
        return jnp.reshape(x @ kernel, (*x.shape[:2], -1, size)).swapaxes(1, 2)

    keys = {name: split(part, block.attention.k.kernel[...]) for name, part in parts.items()}
    queries = {name: split(part, block.attention.q.kernel[...]) for name, part in parts.items()}
    seen = np.tril(np.ones((length, length), bool))
    found = {}
    for q_name, q in queries.items():
        for k_name, k in keys.items():
            k = jnp.repeat(k, heads // k.shape[1], axis=1)
            scores = np.asarray(jnp.einsum("bhqk,bhsk->bhqs", q, k)) / size**0.5
            found[f"{q_name}-{k_name}"] = _spread(scores, seen)
    squares = {name: np.asarray(jnp.sum(k**2, axis=(0, 2, 3))) for name, k in keys.items()}
    share = squares["position"] / (squares["position"] + squares["content"])
    return found | {"position in the keys": np.repeat(share, heads // len(share))}


def _spread(scores: np.ndarray, seen: np.ndarray) -> np.ndarray:  # [B, H, T, T] -> [H]
    """The standard deviation among the keys that a query sees, over all queries."""
    count = seen.sum(axis=1)
    mean = np.where(seen, scores, 0).sum(axis=-1) / count
    squares = np.where(seen, (scores - mean[..., None]) ** 2, 0).sum(axis=-1) / count
    return np.sqrt(squares[..., 1:].mean(axis=(0, 2)))


def draw_decay(rope: RoPE, path: Path) -> Path:
    figure, panels = _panels(len(CONTEXTS))
    for axes, context in zip(panels, CONTEXTS, strict=True):
        distances = np.unique(np.linspace(0, context, min(context + 1, 2_000)).round())
        axes.plot(distances, score_bound(rope, distances), color="#0072B2")
        axes.set(title=f"context of {context:,}", xlabel="distance (tokens)", ylim=(0, 1.05))
        axes.grid(True, color="0.92")
    panels[0].set_ylabel("largest score, over that at distance 0")
    return _save(figure, f"RoPE: how far a score can reach, {_named(rope)}", path)


def draw_distances(rope: RoPE, path: Path) -> Path:
    figure, panels = _panels(len(CONTEXTS))
    image: Any = None
    for axes, context in zip(panels, CONTEXTS, strict=True):
        places = np.linspace(0, context - 1, min(CELLS, context))
        scores = score_of_equals(rope, places[:, None] - places[None, :])
        scores = np.where(places[:, None] >= places[None, :], scores, np.nan)
        image = axes.imshow(
            scores, extent=(0, context, context, 0), cmap="RdBu_r", vmin=-1, vmax=1, aspect="equal"
        )
        axes.set(title=f"context of {context:,}", xlabel="key", ylabel="query")
    figure.colorbar(image, ax=list(panels), shrink=0.8)
    return _save(figure, f"RoPE: score of two equal vectors by their places, {_named(rope)}", path)


def draw_wavelengths(rope: RoPE, scale: float, path: Path) -> Path:
    figure, (axes,) = _panels(1, size=(8, 5))
    pairs = np.arange(rope.inv_freq.shape[-1])
    for name in extensions.fitting(rope):
        record = extensions.records()[name]
        frequencies = record.kind.name == "rotation" and record.scale == "given"
        if name != "none" and (record.needs_options or not frequencies):
            continue
        extended: Any = extensions.extend(name, rope, scale)
        waves = 2 * np.pi / np.asarray(extended.inv_freq, np.float64)
        colour, mark = ("#0072B2", "o") if name == "none" else look_of(name, EXTENSIONS)
        label = "as trained" if name == "none" else f"{name}:{scale:g}"
        axes.plot(pairs, waves, color=colour, marker=mark, markersize=4, label=label)
    for length, word in (
        (rope.train_length, "L"),
        (scale * rope.train_length, f"{scale:g} L"),
    ):
        axes.axhline(length, color="0.5", linestyle=":")
        axes.annotate(word, (0, length), va="bottom", color="0.4")
    axes.set(yscale="log", xlabel="pair", ylabel="wavelength (tokens)")
    axes.grid(True, color="0.92")
    axes.legend(fontsize=8, frameon=False)
    return _save(figure, f"RoPE: wavelengths before and after, {_named(rope)}", path)


def draw_biases(encodings: Sequence[Encoding], length: int, path: Path) -> Path:
    figure, panels = _panels(len(encodings), size=(3.4 * len(encodings), 3.6))
    for axes, encoding in zip(panels, encodings, strict=True):
        biases = bias_by_head(encoding, length)
        for head, bias in enumerate(biases):
            shade = 0.85 * head / max(1, len(biases) - 1)
            label = f"head {head}" if head in (0, len(biases) - 1) else None
            axes.plot(np.arange(length), bias, color=str(shade), label=label)
        axes.axvline(encoding.train_length, color="0.6", linestyle=":")
        low, high = max(biases.min(), NOTHING), biases.max()
        room = 0.05 * (high - low) or 1.0
        axes.set_ylim(low - room, high + room)
        axes.set(title=encoding.name, xlabel="distance (tokens)")
        axes.grid(True, color="0.92")
        axes.legend(fontsize=7, frameon=False)
    panels[0].set_ylabel("added to the score")
    return _save(figure, "biases by head; dotted: L", path)


def draw_similarities(encodings: Sequence[Encoding], length: int, path: Path) -> Path:
    figure, panels = _panels(len(encodings), size=(4 * len(encodings), 3.8))
    image: Any = None
    for axes, encoding in zip(panels, encodings, strict=True):
        n = min(length, encoding.reach or length)
        image = axes.imshow(similarity(encoding, n), cmap="RdBu_r", vmin=-1, vmax=1)
        axes.set(title=encoding.name, xlabel="place", ylabel="place")
    figure.colorbar(image, ax=list(panels), shrink=0.8)
    return _save(figure, "cosine between what is added at two places", path)


def draw_terms(found: dict[str, np.ndarray], name: str, path: Path) -> Path:
    figure, (left, right) = _panels(2, size=(9, 3.8))
    products = [key for key in found if "-" in key]
    heads = np.arange(len(found[products[0]]))
    for rank, key in enumerate(products):
        colour = ("#000000", "#D55E00", "#E69F00", "#0072B2")[rank]
        left.bar(heads + 0.2 * (rank - 1.5), found[key], 0.18, label=key, color=colour)
    left.set(xlabel="head of the first layer", ylabel="spread among the keys of a query")
    left.set_ylim(0, 1.3 * max(found[key].max() for key in products))
    left.legend(fontsize=8, frameon=False, ncols=2)
    right.bar(heads, found["position in the keys"], color="#0072B2")
    right.set(xlabel="head of the first layer", ylabel="share of the keys that is position")
    right.set_ylim(0, 1)
    for axes in (left, right):
        axes.set_xticks(heads)
    return _save(figure, f"{name}: query part - key part of the scores", path)


def _named(rope: RoPE) -> str:
    return f"{rope.inv_freq.shape[-1]} pairs, L = {rope.train_length:,}"


def _panels(count: int, size: tuple[float, float] | None = None):
    from matplotlib.figure import Figure

    figure = Figure(figsize=size or (4 * count, 3.8), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, count))


def _save(figure, title: str, path: Path) -> Path:
    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
