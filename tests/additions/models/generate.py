"""Attention alone, with the weights of all heads in one array; written by a test."""

import jax
import jax.numpy as jnp
from flax import nnx

from models.base import Layer
from models.likelihoods import likelihood
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
        encoding = encoding.windowed(window)
        x = encoding.layer(0).embed(self.read(tokens), row.position)
        for index in range(self.config.layers):
            x = x + self._attend(index, self._layer(index, x, encoding, row))
        return x @ self.table[...].T

    def losses(self, tokens, targets, encoding, **options):
        logits = self(tokens, encoding, **options)
        return likelihood(logits[:, -targets.shape[1] :], targets)

    def loss(self, tokens, targets, weights, encoding, **options):
        return (self.losses(tokens, targets, encoding, **options)[0] * weights).sum()

    @staticmethod
    def decays(path):
        return path == "heads"

    def flops_per_token(self, length):
        return 6.0 * (self.table.size + self.heads.size)

    def layers(self, tokens, encoding):
        row = tokens_of_row(encoding, *tokens.shape)
        x = encoding.layer(0).embed(self.read(tokens), row.position)
        for index in range(self.config.layers):
            layer = self._layer(index, x, encoding, row)
            yield layer
            x = x + self._attend(index, layer)

    def read(self, tokens):
        return self.table[...][tokens]

    def _layer(self, index, x, encoding, row):
        part = encoding.layer(index)
        normed = x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)
        row = row.replace(features=part.read(normed))
        q, k = (lambda x, w=w: jnp.einsum("btd,dhk->bhtk", x, w) for w in self.heads[index, :2])
        return Layer(part, part.phase(row.position), row, normed, q, k)

    def _attend(self, index, layer):
        values, out = self.heads[...][index, 2:]
        v = jnp.einsum("btd,dhk->bhtk", layer.read, values)
        q, k = layer.queries(layer.read), layer.keys(layer.read)
        mixed = attention(q, k, v, layer.encoding, layer.tokens, layer.tokens, phase=layer.phase)
        return jnp.einsum("bhtk,dhk->btd", mixed, out)


Model = HeadsOnly
