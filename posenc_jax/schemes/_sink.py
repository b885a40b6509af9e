"""An attention sink, a logit without a value, around any encoding."""

import jax
import jax.numpy as jnp

from posenc_jax.checks import flag_or_token
from posenc_jax.encoding import Dims, Encoding, trained
from posenc_jax.layers import PerLayer, overrides_in_some_layer


class Sink(PerLayer):
    """OpenAI 2025, arXiv:2508.10925: one trained logit per layer and head, initially 0."""

    logit: jax.Array = trained()  # [H], or [layers, H]

    def sink(self, tokens):
        return self.logit[None, :, None]


class TokenSink(PerLayer):
    """Thinking Machines 2026 (Inkling 2): the logit of a query is w . x per layer and head, where x
    is the input of the layer's attention."""

    kernel: jax.Array = trained()  # [D, H], or [layers, D, H], w, initially 0

    def read(self, x, before=None, document=None):
        x, inner = x.astype(jnp.float32), self.inner.read(x, before, document) or {}
        return inner | {"sink": jnp.einsum("btd,dh->bth", x, self.kernel, precision="highest")}

    def sink(self, tokens):
        return tokens.features["sink"].swapaxes(1, 2)


def with_sink(encoding: Encoding, dims: Dims, sink: bool | str) -> Encoding:
    """Add a sink per layer if the number of layers is known; other arrays stay shared."""
    if not flag_or_token("sink", sink):
        return encoding
    if overrides_in_some_layer(encoding, "attend"):
        raise ValueError(
            f"sink={sink} does not fit encoding {encoding.name!r}, which has its own attention"
        )
    stacked = encoding.layers is not None
    layers = () if dims.layers is None else (dims.layers,)
    common = {
        "dims": dims,
        "layers": encoding.layers,
        "inner": encoding.replace(layers=None),
        "each": None if stacked else dims.layers,
    }
    if sink == "token":
        return TokenSink(kernel=jnp.zeros((*layers, dims.width, dims.heads)), **common)
    return Sink(logit=jnp.zeros((*layers, dims.heads)), **common)
