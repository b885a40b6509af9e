"""A logit without value beside the keys, around any encoding."""

from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, Encoding, Wrapper, bearer, static, trained


class Sink(Wrapper):
    """OpenAI 2025, arXiv:2508.10925: one trained logit per layer and head, which starts at 0."""

    logit: jax.Array = trained()  # [H], or [layers, H]
    each: int | None = static(default=None)  # layers with a logit of their own, sharing the rest

    @property
    def name(self):
        return self.inner.name

    @property
    def depth(self):
        return self.layers if self.each is None else self.each

    def layer(self, index):
        if self.each is None:
            return super().layer(index)
        inner = self.inner.layer(index)
        return self.replace(logit=self.logit[index], each=None, inner=inner)

    def by_layer(self):
        if self.each is None:
            return super().by_layer()
        shared = self.replace(logit=None, each=None)
        nothing: Any = jax.tree.map(lambda leaf: None, shared)
        return nothing.replace(logit=self.logit), shared

    def sink(self):
        return self.logit


def with_sink(encoding: Encoding, dims: Dims) -> Sink:
    """Add a sink per layer where the number of layers is known; other arrays stay shared."""
    if bearer(encoding, "attend").attend is not None:
        raise ValueError(
            f"sink=True does not fit encoding {encoding.name!r}, which brings its own attention"
        )
    stacked = encoding.layers is not None
    shape = (dims.heads,) if dims.layers is None else (dims.layers, dims.heads)
    return Sink(
        dims=dims,
        layers=encoding.layers,
        inner=encoding.replace(layers=None),
        logit=jnp.zeros(shape),
        each=None if stacked else dims.layers,
    )
