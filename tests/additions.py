"""Files that tests add to a copy: an encoding, an extension, two protocols, a family of models."""

SCHEME = '''"""A penalty that grows with the square root of the distance."""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, DistanceBias, trained


class RootBias(DistanceBias):
    """Written by a test, arXiv:0000.00000."""

    log_slope: jax.Array = trained()  # [H]

    def curve(self, distance):
        return -jnp.exp(self.log_slope)[:, None] * jnp.sqrt(distance.astype(jnp.float32))[None, :]


def build(dims: Dims, key: jax.Array, *, sharpness: float = 1.0) -> RootBias:
    draw = jax.random.normal(key, (dims.heads,))
    return RootBias(dims=dims, log_slope=sharpness * draw)
'''

RECIPE = '''"""A penalty by the square root of the distance."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="root_bias", sharpness=1.0)
    return config
'''
EXTENSION = '''
"""Slow down some rotary pairs."""

import numpy as np

from posenc_jax.encoding import fixed
from posenc_jax.extensions._record import extension
from posenc_jax.extensions.rotary import ROTATION
from posenc_jax.checks import positive
from posenc_jax.schemes.rope import RoPE


@extension(ROTATION, scale="given", of=RoPE)
def slowed(rope: RoPE, scale: float, *, share: float = 0.5) -> RoPE:
    """Example 2026: divide the slowest `share` of the pairs by the scale."""
    pairs = rope.inv_freq.shape[-1]
    slow = np.arange(pairs) >= pairs * (1 - positive("share", share))
    return rope.replace(inv_freq=fixed(np.where(slow, rope.inv_freq / scale, rope.inv_freq)))
'''
LAST_THREE = '''"""The last three targets of each longest window; written by a test."""

import numpy as np

from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.windows import plan_of


class LastThree(Protocol):
    title = "the last three targets"
    order = 9

    def plan(self, text, length, span):
        offsets = np.full((len(text.starts), 1), text.longest - length)
        return plan_of(text, length, offsets, length - 3)


protocol = LastThree()
'''
DOUBLED = '''"""The evaluation's text with every token twice; written by a test."""

import dataclasses

import numpy as np

from posenc_jax.evaluation.protocols.nonoverlap import NonOverlap


class Doubled(NonOverlap):
    title = "the text with every token doubled"
    order = 10

    def text(self, text, subject, lengths, config):
        split = text.split
        tokens = np.repeat(split.tokens, 2)
        starts = 2 * np.asarray(split.starts)
        doubled = dataclasses.replace(split, tokens=tokens, starts=starts, bytes_of=None)
        return dataclasses.replace(text, split=doubled, starts=2 * text.starts, source="doubled")


protocol = Doubled()
'''
FAMILY = '''"""Attention alone, with the weights of all heads in one array; written by a test."""

import jax
import jax.numpy as jnp
from flax import nnx

from models.base import Layer
from models.transformer import likelihood
from posenc_jax.attention import attention
from posenc_jax.positions import tokens_of_row


class HeadsOnly(nnx.Module):
    def __init__(self, config, key):
        self.config = config
        table_key, heads_key = jax.random.split(key)
        scale = config.width**-0.5
        table, heads = (config.vocab_size, config.width), (config.heads, config.head_size)
        shape = (config.layers, 4, config.width, *heads)
        self.table = nnx.Param(scale * jax.random.normal(table_key, table))
        self.heads = nnx.Param(scale * jax.random.normal(heads_key, shape))

    def __call__(self, tokens, encoding, *, key=None, positions=None, segments=None, window=None):
        assert positions is None
        row = tokens_of_row(encoding, *tokens.shape, key, segments)
        encoding, x = encoding.windowed(window), self.read(tokens)
        for index in range(self.config.layers):
            x = self._after(index, self._layer(index, x, encoding, row))
        return x @ self.table[...].T

    def losses(self, tokens, targets, encoding, **options):
        logits = self(tokens, encoding, **options)
        return likelihood(logits[:, -targets.shape[1] :], targets)

    @staticmethod
    def decays(path):
        return path == "heads"

    def flops_per_token(self, length):
        return 6.0 * (self.table.size + self.heads.size)

    def layers(self, tokens, encoding):
        row, x = tokens_of_row(encoding, *tokens.shape), self.read(tokens)
        for index in range(self.config.layers):
            yield self._layer(index, x, encoding, row)
            x = self._after(index, self._layer(index, x, encoding, row))

    def read(self, tokens):
        return self.table[...][tokens]

    def _layer(self, index, x, encoding, row):
        part = encoding.layer(index)
        x = part.embed(x, row.position) if index == 0 else x
        normed = x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)
        row = row.replace(features=part.read(normed))
        q, k = (lambda x, w=w: jnp.einsum("btd,dhk->bhtk", x, w) for w in self.heads[index, :2])
        return Layer(part, part.phase(row.position), row, x, normed, q, k)

    def _after(self, index, layer):
        values, out = self.heads[...][index, 2:]
        v = jnp.einsum("btd,dhk->bhtk", layer.read, values)
        q, k = layer.queries(layer.read), layer.keys(layer.read)
        mixed = attention(q, k, v, layer.encoding, layer.tokens, layer.tokens, phase=layer.phase)
        return layer.x + jnp.einsum("bhtk,dhk->btd", mixed, out)


Model = HeadsOnly
'''
FILES = {
    "models/heads_only.py": FAMILY,
    "posenc_jax/schemes/root_bias.py": SCHEME,
    "configs/root_bias.py": RECIPE,
    "posenc_jax/extensions/slowed.py": EXTENSION,
    "posenc_jax/evaluation/protocols/last_three.py": LAST_THREE,
    "posenc_jax/evaluation/protocols/doubled.py": DOUBLED,
}
