"""Logits changed by an MLP that sees the scores and biases of all heads."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import schemes
from posenc_jax.attention import target
from posenc_jax.checks import whole_number
from posenc_jax.encoding import Dims, trained
from posenc_jax.layers import PerLayer, overrides, overrides_in_some_layer
from posenc_jax.schemes.fire import product

OPTIONS = ("inner", "units")
SLOPE = 0.01  # of the leaky ReLU below 0


class DAPE(PerLayer):
    """Zheng et al. 2024, arXiv:2405.14722: scores + bias + f([scores; bias]) at each query and key.

    f is an MLP over heads with one hidden layer of leaky ReLUs; around an encoding without bias, as
    RoPE, it sees the scores alone. Each layer has its own, which starts uniform within 1 /
    sqrt(inputs). Its outputs have no bias: the softmax cancels a constant.
    """

    plain_on_gpu = True  # as compiled; not measured since its rows are computed at once

    w1: jax.Array = trained()  # [2 H, F], or [H, F] without a bias; like the others per layer
    b1: jax.Array = trained()  # [F]
    w2: jax.Array = trained()  # [F, H]

    def logits(self, scores, bias):
        if bias is not None and bias.ndim == 4 and len(bias) == 1:  # of all rows
            bias = bias[0]
        by_row = bias is not None and bias.ndim == 4

        @jax.checkpoint
        def change(row):  # [H, Q, S], and its own bias
            own = row[1] if by_row else bias
            inputs = row[0] if own is None else jnp.concatenate([row[0], own])
            return _mlp(inputs, self.w1, self.b1, self.w2)

        rows = scores, bias if by_row else None
        # A row at a time, whose hidden units fit a cache: 1.7 times as fast on CPU.
        on_cpu = target.platform() == "cpu"
        changes = jax.lax.map(change, rows) if on_cpu else jax.vmap(change)(rows)
        return self.inner.logits(scores, bias) + changes


def mix(scores, bias, w1, b1, w2, b2) -> jax.Array:  # [H, Q, S] twice -> [H, Q, S]
    """Return scores + bias + f([scores; bias]), f(x) = w2 LeakyReLU(w1 x + b1) + b2 over heads.

    w1 is [2 H, F] and w2 [F, H].
    """
    change = _mlp(jnp.concatenate([scores, bias]), w1, b1, w2)
    return scores + bias + change + b2[:, None, None]


def _mlp(inputs, w1, b1, w2):  # [2 H or H, Q, S] -> [H, Q, S]
    hidden = product(w1.T, inputs.reshape(len(inputs), -1)) + b1[:, None]
    outputs = product(w2.T, jax.nn.leaky_relu(hidden, SLOPE))
    return outputs.reshape(-1, *inputs.shape[1:])


def build(
    dims: Dims,
    key: jax.Array,
    *,
    inner: str = "kerple_log",
    units: int = 32,
    **inner_options,
) -> DAPE:
    """Build the MLP with F = `units` around `inner`, which may carry options: `fire:hidden=16`."""
    whole_number("units", units, at_least=1, at_most=2**16)
    inner_key, key = jax.random.split(key)
    encoding = schemes.build_inner("dape", OPTIONS, inner, dims, inner_key, inner_options)
    if overrides_in_some_layer(encoding, "attend"):
        raise ValueError(f"inner must not have its own attention; got {inner!r}")
    inputs = dims.heads * (2 if overrides(encoding, "bias") else 1)
    layers = () if dims.layers is None else (dims.layers,)

    def uniform(key, shape: tuple[int, ...], inputs: int):
        bound = 1 / math.sqrt(inputs)
        return jax.random.uniform(key, (*layers, *shape), minval=-bound, maxval=bound)

    keys = jax.random.split(key, 3)
    common: Any = {"dims": dims, "layers": encoding.layers, "inner": encoding.replace(layers=None)}
    return DAPE(
        **common,
        each=dims.layers if encoding.layers is None else None,
        w1=uniform(keys[0], (inputs, units), inputs),
        b1=uniform(keys[1], (units,), inputs),
        w2=uniform(keys[2], (units, dims.heads), units),
    )
