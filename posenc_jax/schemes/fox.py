"""Forget gates: a bias from the content, by which each token fades earlier tokens."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import schemes
from posenc_jax.checks import choice, finite
from posenc_jax.encoding import (
    Dims,
    Encoding,
    KeySum,
    SlopeBias,
    Tokens,
    check_far,
    fixed,
    trained,
    trained_mask,
    two_sum,
)
from posenc_jax.layers import Wrapper, one_per_layer, overrides_in_some_layer

OPTIONS = ("gate", "bias_init", "inner")


class FoX(KeySum, Wrapper):
    """Lin et al. 2025, arXiv:2503.02130: log f summed over the tokens after the key.

    f = sigmoid(w x + b) per head, where x is the input of the layer's attention; the sum includes
    the query's gate but not the key's. Gates are computed and summed in float32. Bare positions
    carry no content, so their bias comes from b alone.
    """

    kernel: jax.Array = trained()  # [D, H], starts normal with standard deviation 0.02
    shift: jax.Array = trained()  # [H], b

    def read(self, x, before=None, document=None):
        gates = jnp.einsum("btd,dh->bth", x.astype(jnp.float32), self.kernel, precision="highest")
        return summed(jax.nn.log_sigmoid(gates + self.shift[None, None]), before)

    def sums(self, tokens):
        if not isinstance(tokens, Tokens):
            check_far("positions", tokens)
            steps = jax.nn.log_sigmoid(self.shift)
            line = jnp.multiply.outer(jnp.asarray(tokens, jnp.float32), steps)
            return line, jnp.zeros_like(line)
        if tokens.features is None:
            raise ValueError(
                "encoding 'fox' needs features: pass features=encoding.read(x), x the layer's input"
            )
        return tokens.features["sum"], tokens.features["rest"]


class BiasOnly(SlopeBias, Wrapper):
    """Lin et al. 2025, arXiv:2503.02130, without content: trained slopes -log sigmoid(b)."""

    shift: jax.Array = trained()  # [H], b

    def slope(self):
        return -jax.nn.log_sigmoid(self.shift)


class Fixed(SlopeBias, Wrapper):
    """Lin et al. 2025, arXiv:2503.02130, untrained: fixed slopes 1 / T."""

    time: jax.Array  # [H], T: tokens until a weight fades to 1 / e

    def slope(self):
        return 1 / self.time


def summed(steps: jax.Array, before: Any = None) -> dict[str, jax.Array]:  # [B, T, ...]
    """Return running sums and their rounding errors, which follow those of the token before."""
    if before is None:
        return dict(zip(("sum", "rest"), running_sum(steps), strict=True))
    total, rest = (before[name][:, -1:] for name in ("sum", "rest"))
    first = steps[:, :1] + rest
    high, low = running_sum(jnp.concatenate([total, first, steps[:, 1:]], axis=1))
    return {"sum": high[:, 1:], "rest": low[:, 1:]}


@jax.custom_jvp
def running_sum(x: jax.Array) -> tuple[jax.Array, jax.Array]:  # [B, T, ...] -> the same twice
    """Return the float32 sum up to each token, and its rounding error.

    After 16,000 gates near 1/2 the sum is 10^4; without the error term, differences of neighbours
    would be off by 1e-3.
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
    """Sum log f over the tokens j+1 .. i for query i and key j; finite above the diagonal."""
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
    inner: str = "nope",
    **inner_options,
) -> Encoding:
    """Build forget gates around another encoding; trained gates are per layer if `dims.layers`.

    `full` reads the content, `bias_only` trains b alone, and `fixed` spaces the times T evenly in
    ln T from 1 to L. b starts at `bias_init` (None: 0, as published).
    """
    inner_encoding = _inner(dims, inner, inner_options)
    if choice("gate", gate, ("full", "bias_only", "fixed")) == "fixed":
        if bias_init is not None:
            raise ValueError(f"bias_init = {bias_init!r} has no effect with gate='fixed'")
        times = np.geomspace(1.0, dims.train_length, dims.heads)
        return Fixed(dims=dims, inner=inner_encoding, time=fixed(times))
    if key is None:
        raise ValueError("encoding 'fox' has trained fields: build it with key=jax.random.key(...)")
    shift = fixed(np.full(dims.heads, finite("bias_init", bias_init or 0.0)))

    def gates(key) -> Any:
        if gate == "bias_only":
            return BiasOnly(dims=dims, inner=inner_encoding, shift=shift)
        kernel = 0.02 * jax.random.normal(key, (dims.width, dims.heads))
        return FoX(dims=dims, inner=inner_encoding, kernel=kernel, shift=shift)

    return gates(key) if dims.layers is None else one_per_layer(gates, dims, key)


def _inner(dims: Dims, name: str, options: dict[str, Any]) -> Encoding:
    """Build the inner encoding, which may neither add a bias, nor attend itself, nor be trained."""
    encoding = schemes.build_inner("fox", OPTIONS, name, dims, jax.random.key(0), options)
    own = any(overrides_in_some_layer(encoding, hook) for hook in ("bias", "attend"))
    if own or any(jax.tree.leaves(trained_mask(encoding))):
        raise ValueError(
            "inner must have no bias, no attention of its own and no trained arrays, as nope and "
            f"rope; got {name!r}"
        )
    return encoding
