"""A bias of the distance beside any other encoding, without effect until it is trained."""

import jax
import jax.numpy as jnp

from posenc_jax import schemes
from posenc_jax.encoding import Dims, Encoding, trained
from posenc_jax.layers import PerLayer, overrides

OPTIONS = ("inner", "added")
HOOKS = ("embed", "read", "phase", "regions", "logits", "sink", "attend", "recur")


class Plus(PerLayer, kw_only=True):
    """The bias of `added` times a factor, trained per layer and head and 0 at first."""

    added: Encoding
    gate: jax.Array = trained()  # [H], or [layers, H]

    def bias(self, q, k):
        bias = self.added.bias(q, k)
        assert bias is not None
        gate = jnp.expand_dims(self.gate, (*range(bias.ndim - 3), -2, -1))  # [..., H, 1, 1]
        bias, inner = gate * bias, self.inner.bias(q, k)
        return bias if inner is None else bias + inner


def build(
    dims: Dims, key: jax.Array, *, inner: str = "rope", added: str = "fire", **inner_options
) -> Plus:
    """Add the bias of one encoding to `inner`; both may carry options: `fire:hidden=16`."""
    keys = jax.random.split(key)
    encoding = schemes.build_inner("plus", OPTIONS, inner, dims, keys[0], inner_options)
    bias = schemes.build_inner("plus", OPTIONS, added, dims, keys[1], {})
    if not overrides(bias, "bias") or any(overrides(bias, hook) for hook in HOOKS):
        raise ValueError(f"added must be a bias of positions, such as fire or t5; got {added!r}")
    if encoding.layers is not None or overrides(encoding, "attend"):
        raise ValueError(f"added = {added!r} does not fit inner {inner!r}; use another one")
    shape = (dims.heads,) if dims.layers is None else (dims.layers, dims.heads)
    gate = jnp.zeros(shape)
    return Plus(dims=dims, inner=encoding, added=bias, gate=gate, each=dims.layers)
