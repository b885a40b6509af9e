"""Numbers of what position does in an encoding and inside a run: spectrum, bias, attention."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import neighbours
from posenc_jax.attention import attention as attend_heads
from posenc_jax.encoding import Encoding, KeySum, Phase, Tokens, bearer
from posenc_jax.errors import ConfigError
from posenc_jax.positions import tokens_of_row
from posenc_jax.schemes.rope import RoPE

if TYPE_CHECKING:
    import models
else:
    models = neighbours.models()


def rotary(encoding: Encoding) -> RoPE | None:
    inner = bearer(encoding, "phase")
    return inner if isinstance(inner, RoPE) else None


def spectrum(rope: RoPE) -> tuple[np.ndarray, np.ndarray]:  # [tables, R/2]
    """Tokens per turn of each pair, extension included, and its turns within L."""
    frequency = np.asarray(rope.freq, np.float64).reshape(-1, rope.freq.shape[-1])
    with np.errstate(divide="ignore"):  # a pair with frequency 0
        return 2 * np.pi / frequency, rope.train_length * frequency / (2 * np.pi)


def bias_by_distance(encoding: Encoding, length: int) -> np.ndarray | None:  # [H, length]
    """What the encoding adds to the logits of the last of `length` queries, by distance."""
    positions = jnp.arange(length)
    bias = encoding.bias(positions[-1:], positions)
    return None if bias is None else np.asarray(bias, np.float64)[..., 0, ::-1]


def effective_keys(
    encoding: Encoding, length: int, layers: int
) -> np.ndarray | None:  # [layers, H]; one layer where all are the same
    """How many of `length` keys the last query sees where q . k = 0: the exponential of the entropy
    of its weights, which are then those of the bias. None where no layer has a bias.

    What an encoding reads from the content is read from zeros.
    """
    distinct = layers if encoding.layers is not None or encoding.period > 1 else 1
    each = [encoding.layer(index) for index in range(distinct)]
    made = [_flat_keys(one, length) for one in each]
    if all(keys is None for keys in made):
        return None
    seen = [min(length, one.narrowed(None) or length) for one in each]
    return np.stack(
        [
            np.full(encoding.dims.heads, float(count)) if keys is None else np.asarray(keys)
            for keys, count in zip(made, seen, strict=True)
        ]
    )


@functools.partial(jax.jit, static_argnames="length")
def _flat_keys(encoding: Encoding, length: int) -> jax.Array | None:  # [H]
    """The effective keys of the last query of a row where all scores are 0; None without a bias."""
    row = tokens_of_row(encoding, 1, length)
    row = row.replace(features=encoding.read(jnp.zeros((1, length, encoding.dims.width))))
    last = row.replace(
        position=row.position[..., -1:],
        features=jax.tree.map(lambda leaf: leaf[:, -1:], row.features),
    )
    bias = encoding.bias(last, row)
    if bias is None:
        return None
    logits = encoding.logits(jnp.zeros((1, encoding.dims.heads, 1, length)), bias)[0, :, 0]
    window = encoding.narrowed(None) or length
    seen = jnp.arange(length) >= length - window
    weights = jax.nn.softmax(jnp.where(seen[None], logits, -jnp.inf), axis=-1)
    return jnp.exp(jnp.sum(jax.scipy.special.entr(weights), axis=-1))


def score_bound(rope: RoPE, distances: np.ndarray) -> np.ndarray:
    """The bound on a score at a distance over that at distance 0, after Su et al., 2021, 3.4.3.

    It is the mean modulus of the partial sums of exp(i d theta_j).
    """
    angles = np.asarray(distances, np.float64)[:, None] * np.asarray(rope.freq, np.float64)
    partial = np.abs(np.cumsum(np.exp(1j * angles), axis=1)).mean(axis=1)
    return partial / (np.arange(angles.shape[1]) + 1).mean()


def score_of_equals(rope: RoPE, distances: np.ndarray) -> np.ndarray:
    """q . k / |q|^2 where q and k are the same vector of equal entries before they are rotated."""
    angles = np.asarray(distances, np.float64)[..., None] * np.asarray(rope.freq, np.float64)
    return np.cos(angles).mean(axis=-1)


def similarity(encoding: Encoding, length: int) -> np.ndarray:  # [length, length]
    """Cosines between the vectors that an additive encoding adds at two places."""
    nothing = jnp.zeros((1, length, encoding.dims.width))
    added = np.asarray(encoding.embed(nothing, jnp.arange(length))[0], np.float64)
    added /= np.linalg.norm(added, axis=1, keepdims=True)
    return added @ added.T


class Attention(NamedTuple):
    """Means over rows by layer, head and query: [layers, H, T]."""

    beyond: np.ndarray  # share of the weights on keys at L tokens back and further
    entropy: np.ndarray  # of the weights, in nats


def attention(
    model: models.Transformer, encoding: Encoding, tokens: np.ndarray, trained: int
) -> Attention:
    """Where attention goes; rows are read one by one, whose weights are layers x H x T x T."""

    @jax.jit
    def row(model, encoding, tokens):
        layers = [_describe(w, trained) for w in attention_weights(model, encoding, tokens[None])]
        return tuple(jnp.stack(part) for part in zip(*layers, strict=True))

    rows = [jax.device_get(row(model, encoding, one)) for one in tokens]
    beyond, entropy = (np.stack(part).mean(axis=0) for part in zip(*rows, strict=True))
    return Attention(np.asarray(beyond), np.asarray(entropy))


def _describe(weights: jax.Array, trained: int) -> tuple[jax.Array, jax.Array]:  # [1, H, T, T]
    place = jnp.arange(weights.shape[-1])
    far = place[:, None] - place[None, :] >= trained
    beyond = jnp.sum(jnp.where(far, weights, 0.0), axis=-1)
    entropy = -jnp.sum(jax.scipy.special.xlogy(weights, weights), axis=-1)
    return beyond[0], entropy[0]


class Layer(NamedTuple):
    """One layer of a model that reads tokens."""

    block: Any
    encoding: Encoding
    phase: Phase | None
    read: jax.Array  # [B * T, D], the input of its attention
    row: Tokens


def layers(model: models.Transformer, encoding: Encoding, tokens: jax.Array) -> Iterator[Layer]:
    """The layers of a model, each with what it reads; tokens [B, T]."""
    config = model.config
    batch, length = tokens.shape
    positions = encoding.positions(length)
    row = tokens_of_row(encoding, batch, length)
    x = encoding.layer(0).embed(model.read(tokens), positions)
    x = x.astype(config.dtype)
    for index in range(config.layers):
        block = jax.tree.map(lambda leaf, i=index: leaf[i], model.blocks)
        own = encoding.layer(index)
        phase = own.phase(positions)
        read = x.reshape(-1, config.width)
        read = block.attention_norm(read) if config.norm_place == "pre" else read
        carried = own.read(read.reshape(batch, length, -1))
        yield Layer(block, own, phase, read, row.replace(features=carried))
        x = block(x, own, row, phase=phase, window=None)


def attention_weights(
    model: models.Transformer, encoding: Encoding, tokens: jax.Array
) -> Iterator[jax.Array]:  # tokens [B, T]; of each layer [B, H, T, T]
    """The weights of every layer: what attention returns for the identity as values."""
    config = model.config
    batch, length = tokens.shape
    identity = jnp.broadcast_to(jnp.eye(length), (batch, config.groups, length, length))
    for one in layers(model, encoding, tokens):
        q, k = (
            project(one.read).reshape(batch, length, -1, config.head_size).swapaxes(1, 2)
            for project in (one.block.attention.q, one.block.attention.k)
        )
        weights = attend_heads(
            q,
            k,
            identity,
            one.encoding,
            one.row,
            one.row,
            phase=one.phase,
            implementation="plain",
        )
        yield weights.astype(jnp.float32)


def gates(model: models.Transformer, encoding: Encoding, tokens: np.ndarray) -> np.ndarray:
    """How much of the past the gate of each token keeps, between 0 and 1: [layers, H, T]."""

    @jax.jit
    def of_layers(model, encoding, tokens):
        return jnp.stack([_kept(one) for one in layers(model, encoding, tokens[None])])

    return np.asarray(of_layers(model, encoding, jnp.asarray(tokens)))


def _kept(layer: Layer) -> jax.Array:  # [H, T]
    """exp of the bias between neighbours; the first token has none before it."""
    gated = bearer(layer.encoding, "bias")
    assert isinstance(gated, KeySum)
    total, rest = (part[0] for part in gated.sums(layer.row))  # [T, H]
    steps = jnp.diff(total, axis=0, prepend=0.0) + jnp.diff(rest, axis=0, prepend=0.0)
    return jnp.exp(steps).T


def terms(model, encoding: Encoding, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """The four terms of the first layer's scores, q . k / sqrt(K): [H] of each, over causal pairs.

    They are the products of (x + p_m) W_q . (x + p_n) W_k, where x is the token and p its position,
    both divided by the same norm, so that they add up to the scores. A value is the standard
    deviation of a term among the keys of a query: a constant would not change its attention.
    """
    if (model.config.norm, model.config.norm_place) != ("rms", "pre"):
        raise ConfigError("the four terms are those of a model with norm='rms', norm_place='pre'")
    length = tokens.shape[1]
    positions = jnp.arange(length)
    x = model.read(jnp.asarray(tokens))  # [B, T, D]
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
