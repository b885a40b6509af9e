"""Diagnose position inside one run: rotary spectrum, learned bias, where attention goes."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import neighbours
from posenc_jax.attention import attention as attend_heads
from posenc_jax.encoding import Encoding
from posenc_jax.positions import tokens_of_row
from posenc_jax.schemes.randomized import Randomized
from posenc_jax.schemes.rope import RoPE

if TYPE_CHECKING:
    import models
else:
    models = neighbours.models()


def rotary(encoding: Encoding) -> RoPE | None:
    inner = encoding.inner if isinstance(encoding, Randomized) else encoding
    return inner if isinstance(inner, RoPE) else None


def spectrum(rope: RoPE) -> tuple[np.ndarray, np.ndarray]:  # [tables, R/2]
    """Tokens per turn of each pair, extension included, and its turns within L."""
    frequency = np.asarray(rope.inv_freq, np.float64).reshape(-1, rope.inv_freq.shape[-1])
    with np.errstate(divide="ignore"):  # a pair with frequency 0
        return 2 * np.pi / frequency, rope.train_length * frequency / (2 * np.pi)


def bias_by_distance(encoding: Encoding, length: int) -> np.ndarray | None:  # [heads, length]
    """The bias of the last of `length` queries, by distance back."""
    positions = jnp.arange(length)
    bias = encoding.bias(positions[-1:], positions)
    return None if bias is None else np.asarray(bias)[:, 0, ::-1]


class Attention(NamedTuple):
    """Statistics of attention by layer, head and query, [layers, H, T], means over rows."""

    beyond: np.ndarray  # share of the weights on keys at L tokens back and further
    entropy: np.ndarray  # of the weights, in nats


def attention(
    model: models.Transformer, encoding: Encoding, tokens: np.ndarray, trained: int
) -> Attention:
    """Measure attention row by row, since one row's weights take layers x H x T x T numbers."""

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


def attention_weights(
    model: models.Transformer, encoding: Encoding, tokens: jax.Array
) -> Iterator[jax.Array]:  # tokens [B, T]; of each layer [B, H, T, T]
    """The weights of attention, which it returns where the values are rows of the identity."""
    config = model.config
    batch, length = tokens.shape
    positions = encoding.positions(length)
    row = tokens_of_row(encoding, batch, length)
    x = encoding.layer(0).embed(model.embed(tokens), positions)
    x = x.astype(config.dtype)
    identity = jnp.broadcast_to(jnp.eye(length), (batch, config.groups, length, length))
    for index in range(config.layers):
        block = jax.tree.map(lambda leaf, i=index: leaf[i], model.blocks)
        own = encoding.layer(index)
        phase = own.phase(positions)
        read = x.reshape(-1, config.width)
        read = block.attention_norm(read) if config.norm_place == "pre" else read
        q, k = (
            project(read).reshape(batch, length, -1, config.head_size).swapaxes(1, 2)
            for project in (block.attention.q, block.attention.k)
        )
        carried = own.read(read.reshape(batch, length, -1))
        seen = row.replace(features=carried)
        weights = attend_heads(q, k, identity, own, seen, seen, phase=phase, implementation="plain")
        yield weights.astype(jnp.float32)
        x = block(x, own, row, phase=phase, window=None)


def uniform_entropy(length: int) -> np.ndarray:  # [T]
    """The entropy of a query that attends evenly to all it may see."""
    return np.array([math.log(n) for n in range(1, length + 1)])
