"""An attention sink, a logit without a value, around any encoding."""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, Encoding, trained
from posenc_jax.layers import PerLayer, overrides


class Sink(PerLayer):
    """OpenAI 2025, arXiv:2508.10925: one trained logit per layer and head, initially 0."""

    logit: jax.Array = trained()  # [H], or [layers, H]

    @property
    def name(self):
        return self.inner.name

    def sink(self):
        return self.logit


def with_sink(encoding: Encoding, dims: Dims) -> Sink:
    """Add a sink per layer if the number of layers is known; other arrays stay shared."""
    if overrides(encoding, "attend"):
        raise ValueError(
            f"sink=True does not fit encoding {encoding.name!r}, which has its own attention"
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
