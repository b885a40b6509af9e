"""Measure the effect of position in an encoding and inside a run: spectrum, bias, attention."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import models
from posenc_jax.attention import attention as attend_heads
from posenc_jax.encoding import Encoding, KeySum
from posenc_jax.layers import bearer, holds_state
from posenc_jax.schemes.rope import RoPE


def rotary(encoding: Encoding) -> RoPE | None:
    inner = bearer(encoding, "phase")
    return inner if isinstance(inner, RoPE) else None


def spectrum(rope: RoPE) -> tuple[np.ndarray, np.ndarray]:  # [tables, R/2]
    """Tokens per turn of each rotary pair, extension included, and its turns within L."""
    frequency = np.asarray(rope.freq, np.float64).reshape(-1, rope.freq.shape[-1])
    with np.errstate(divide="ignore"):  # a pair with frequency 0
        return 2 * np.pi / frequency, rope.train_length * frequency / (2 * np.pi)


def bias_by_distance(encoding: Encoding, length: int) -> np.ndarray | None:  # [H, length]
    """Bias on the logits of the last of `length` queries, by distance; None without a bias."""
    positions = jnp.arange(length)
    bias = encoding.bias(positions[-1:], positions)
    return None if bias is None else np.asarray(bias, np.float64)[..., 0, ::-1]


class Attention(NamedTuple):
    """Means over rows by layer, head and query: [layers, H, T]."""

    beyond: np.ndarray  # share of the weights on keys at L tokens back and further
    entropy: np.ndarray  # of the weights, in nats
    first: np.ndarray  # weight on token 0


# Gu et al., 2024 (arXiv:2410.10781) call a head with this mean weight on token 0 a sink; it is ten
# times what uniform attention gives from query 33 on.
SINK = 0.3


def on_first(first: np.ndarray, trained: int) -> np.ndarray:  # [layers, H, T] -> [layers, H]
    """Mean weight on token 0 of the queries from the 33rd on and within L = `trained`."""
    within = first[..., :trained]
    return within[..., min(32, within.shape[-1] // 2) :].mean(axis=-1)


def sink_in_words(weight: np.ndarray) -> str:  # [layers, H]
    count = int((weight > SINK).sum())
    layer, head = np.unravel_index(weight.argmax(), weight.shape)
    return (
        f"{'an' if count else 'no'} attention sink: {count} of {weight.size} heads give token 0 "
        f"more than {SINK} of their attention (most: {weight.max():.3f}, layer {layer} head {head};"
        f" mean of all heads: {weight.mean():.3f})"
    )


def attention(
    model: models.Model, encoding: Encoding, tokens: np.ndarray, trained: int
) -> Attention:
    """Mean attention over rows, read one at a time: a row's weights take layers x H x T x T."""

    @jax.jit
    def row(model, encoding, tokens):
        layers = [_describe(w, trained) for w in attention_weights(model, encoding, tokens[None])]
        return tuple(jnp.stack(values) for values in zip(*layers, strict=True))

    rows = [jax.device_get(row(model, encoding, row_tokens)) for row_tokens in tokens]
    return Attention(*(np.stack(values).mean(axis=0) for values in zip(*rows, strict=True)))


def _describe(weights: jax.Array, trained: int) -> tuple[jax.Array, ...]:  # [1, H, T, T]
    index = jnp.arange(weights.shape[-1])
    far = index[:, None] - index[None, :] >= trained
    beyond = jnp.sum(jnp.where(far, weights, 0.0), axis=-1)
    entropy = -jnp.sum(jax.scipy.special.xlogy(weights, weights), axis=-1)
    return beyond[0], entropy[0], weights[0, :, :, 0]


def attention_weights(
    model: models.Model, encoding: Encoding, tokens: jax.Array
) -> Iterator[jax.Array]:  # tokens [B, T]; per layer [B, H, T, T]
    """Yield the attention weights of every layer: the output for the identity as values.

    Weights without a softmax may be negative; theirs are shares of the sum of their sizes.
    """
    batch, length = tokens.shape
    for layer in model.layers(tokens, encoding):
        q, k = layer.queries(layer.read), layer.keys(layer.read)
        identity = jnp.broadcast_to(jnp.eye(length), (batch, k.shape[1], length, length))
        sides = layer.tokens, layer.tokens
        options: Any = {"phase": layer.phase, "implementation": "plain"}
        weights = attend_heads(q, k, identity, layer.encoding, *sides, **options)
        weights = weights.astype(jnp.float32)
        if holds_state(layer.encoding):
            weights = jnp.abs(weights) / jnp.sum(jnp.abs(weights), axis=-1, keepdims=True)
        yield weights


def gates(model: models.Model, encoding: Encoding, tokens: np.ndarray) -> np.ndarray:
    """Forget gate of each token, the share of the past that it keeps: [layers, H, T]."""

    @jax.jit
    def all_layers(model, encoding, tokens):
        return jnp.stack([_gate(layer) for layer in model.layers(tokens[None], encoding)])

    return np.asarray(all_layers(model, encoding, jnp.asarray(tokens)))


def _gate(layer: models.Layer) -> jax.Array:  # [H, T]
    """exp of the bias between neighbouring tokens; the first token has no neighbour before it."""
    gated = bearer(layer.encoding, "bias")
    assert isinstance(gated, KeySum)
    total, rest = (sums[0] for sums in gated.sums(layer.tokens))  # [T, H]
    steps = jnp.diff(total, axis=0, prepend=0.0) + jnp.diff(rest, axis=0, prepend=0.0)
    return jnp.exp(steps).T
