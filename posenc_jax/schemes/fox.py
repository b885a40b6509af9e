"""Forget gates: a penalty, read from the content, by which each token fades those before it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import schemes
from posenc_jax.checks import choice, finite, positive
from posenc_jax.encoding import (
    Dims,
    DistanceBias,
    Encoding,
    KeySum,
    Tokens,
    Wrapper,
    check_far,
    fixed,
    one_per_layer,
    overrides,
    trained,
    trained_mask,
    two_sum,
)

OWN = ("gate", "bias_init", "shortest", "longest", "inner")


class FoX(KeySum, Wrapper):
    """Lin et al. 2025, arXiv:2503.02130: the sum of log f over the tokens after the key.

    f = sigmoid(w x + b) per head, where x is the input of each layer's attention; the query's own
    gate counts, the key's does not. Gates are computed and summed in float32. Bare positions have
    no content: their bias comes from b alone.
    """

    kernel: jax.Array = trained()  # [D, H], starts normal with standard deviation 0.02
    shift: jax.Array = trained()  # [H], b

    def read(self, x, before=None):
        gates = jnp.einsum("btd,dh->bth", x.astype(jnp.float32), self.kernel, precision="highest")
        steps = jax.nn.log_sigmoid(gates + self.shift[None, None])
        if before is None:
            return dict(zip(("sum", "rest"), running_sum(steps), strict=True))
        total, rest = (before[name][:, -1:] for name in ("sum", "rest"))
        first = steps[:, :1] + rest
        high, low = running_sum(jnp.concatenate([total, first, steps[:, 1:]], axis=1))
        return {"sum": high[:, 1:], "rest": low[:, 1:]}

    def sums(self, tokens):
        if not isinstance(tokens, Tokens):
            check_far("positions", tokens)
            steps = jax.nn.log_sigmoid(self.shift)
            line = jnp.multiply.outer(jnp.asarray(tokens, jnp.float32), steps)
            return line, jnp.zeros_like(line)
        if tokens.features is None:
            raise ValueError(
                "encoding 'fox' needs features: give what its `read` returns for a layer's input"
            )
        return tokens.features["sum"], tokens.features["rest"]


class BiasOnly(DistanceBias, Wrapper):
    """Lin et al. 2025, arXiv:2503.02130, gates without content: trained slopes -log sigmoid(b)."""

    shift: jax.Array = trained()  # [H], b

    def curve(self, distance):
        return -self.straight()[:, None] * distance.astype(jnp.float32)[None, :]

    def straight(self):
        return -jax.nn.log_sigmoid(self.shift)


class Fixed(DistanceBias, Wrapper):
    """Lin et al. 2025, arXiv:2503.02130, gates that are not trained: slopes 1 / T."""

    time: jax.Array  # [H], T: the tokens after which a weight has faded to 1 / e

    def curve(self, distance):
        return -distance.astype(jnp.float32)[None, :] / self.time[:, None]

    def straight(self):
        return 1 / self.time


@jax.custom_jvp
def running_sum(x: jax.Array) -> tuple[jax.Array, jax.Array]:  # [B, T, H] -> the same twice
    """The sum up to each token in float32, and its rounding error.

    After 16,000 gates near 1/2 the sum is 10^4, and differences of neighbours would be off by 1e-3.
    """

    def add(left, right):
        high, error = two_sum(left[0], right[0])
        return high, error + left[1] + right[1]

    return jax.lax.associative_scan(add, (x, jnp.zeros_like(x)), axis=1)


@running_sum.defjvp
def _(primals, tangents):
    high, rest = running_sum(*primals)
    return (high, rest), (jnp.cumsum(tangents[0], axis=1), jnp.zeros_like(rest))


def bias(gate_logits: jax.Array) -> jax.Array:  # [..., T] -> [..., T, T]
    """log f summed over the tokens j+1 .. i for query i and key j; finite above the diagonal."""
    steps = jax.nn.log_sigmoid(jnp.asarray(gate_logits, jnp.float32))
    length = steps.shape[-1]
    total, rest = running_sum(steps.reshape(-1, length)[..., None])
    difference = (total - total.swapaxes(1, 2)) + (rest - rest.swapaxes(1, 2))
    return difference.reshape(*steps.shape, length)


def build(
    dims: Dims,
    key: jax.Array | None = None,
    *,
    gate: str = "full",
    bias_init: float | None = None,
    shortest: float | None = None,
    longest: float | None = None,
    inner: str = "nope",
    **inner_options,
) -> Encoding:
    """Build gates around another encoding; trained ones per layer where `dims.layers` is given.

    `full` reads content, `bias_only` trains b alone, and `fixed` has times from `shortest` to
    `longest` (None: 1 and L), evenly in ln T. b starts at `bias_init` (None: 0, as published).
    """
    trains = choice("gate", gate, ("full", "bias_only", "fixed")) != "fixed"
    unread = {"shortest": shortest, "longest": longest} if trains else {"bias_init": bias_init}
    for name, value in unread.items():
        if value is not None:
            raise ValueError(f"{name} = {value!r} has no effect with gate={gate!r}")
    around = _inner(dims, inner, inner_options)
    if not trains:
        return Fixed(dims=dims, inner=around, time=fixed(_times(dims, shortest, longest)))
    if key is None:
        raise ValueError("encoding 'fox' has trained fields: build it with key=jax.random.key(...)")
    shift = fixed(np.full(dims.heads, finite("bias_init", bias_init or 0.0)))

    def one(key) -> Any:
        if gate == "bias_only":
            return BiasOnly(dims=dims, inner=around, shift=shift)
        kernel = 0.02 * jax.random.normal(key, (dims.width, dims.heads))
        return FoX(dims=dims, inner=around, kernel=kernel, shift=shift)

    return one(key) if dims.layers is None else one_per_layer(one, dims, key)


def _times(dims: Dims, shortest: float | None, longest: float | None) -> np.ndarray:  # [H]
    shortest = 1.0 if shortest is None else positive("shortest", shortest)
    longest = float(dims.train_length) if longest is None else positive("longest", longest)
    if shortest > longest:
        raise ValueError(
            f"shortest must not exceed longest; got shortest={shortest:g}, longest={longest:g}"
        )
    return np.exp(np.linspace(math.log(shortest), math.log(longest), dims.heads))


def _inner(dims: Dims, name: str, options: dict[str, Any]) -> Encoding:
    """The encoding that gates are around, which has no bias of its own."""
    encoding = schemes.build_inner("fox", OWN, name, dims, jax.random.key(0), options)
    if overrides(encoding, "bias") or any(jax.tree.leaves(trained_mask(encoding))):
        raise ValueError(
            f"inner must add no bias and train nothing, such as nope or rope; got {name!r}"
        )
    return encoding
