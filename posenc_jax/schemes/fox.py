"""Forget gates: a penalty, read from the content, by which each token fades those before it."""

from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.checks import choice
from posenc_jax.encoding import Dims, Encoding, KeySum, Tokens, check_far, one_per_layer, trained


class FoX(KeySum):
    """Lin et al. 2025, arXiv:2503.02130: the sum of log f over the tokens after the key.

    f = sigmoid(w x + b) per head, where x is the input of each layer's attention; the query's own
    gate counts, the key's does not. Gates are computed and summed in float32. Bare positions have
    no content: their bias comes from b alone.
    """

    kernel: jax.Array = trained()  # [D, H], starts normal with standard deviation 0.02
    shift: jax.Array = trained()  # [H], b, starts at 0

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


@jax.custom_jvp
def running_sum(x: jax.Array) -> tuple[jax.Array, jax.Array]:  # [B, T, H] -> the same twice
    """The sum up to each token in float32, and its rounding error.

    After 16,000 gates near 1/2 the sum is 10^4, and differences of neighbours would be off by 1e-3.
    """

    def add(left, right):
        high = left[0] + right[0]
        moved = high - left[0]
        error = (left[0] - (high - moved)) + (right[0] - moved)
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


def build(dims: Dims, key: jax.Array, *, gate: str = "full") -> Encoding:
    """Build one per layer where `dims.layers` is given: gates read their layer's input."""
    choice("gate", gate, ("full",))

    def one(key) -> Any:
        kernel = 0.02 * jax.random.normal(key, (dims.width, dims.heads))
        return FoX(dims=dims, kernel=kernel, shift=jnp.zeros(dims.heads))

    return one(key) if dims.layers is None else one_per_layer(one, dims, key)
