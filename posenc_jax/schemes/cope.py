"""Positions counted by content: a bias at the number of gates that open between key and query."""

import jax
import jax.numpy as jnp

from posenc_jax.attention.plain import check_fits, plain, visible
from posenc_jax.attention.sharpest import by_queries
from posenc_jax.checks import flag, whole_number
from posenc_jax.encoding import Dims, Encoding, static, trained
from posenc_jax.layers import stack
from posenc_jax.schemes._rows import ascending


class CoPE(Encoding):
    """Golovneva et al. 2024, arXiv:2405.18719: the bias is q_i . e_p, where the position p of key j
    is the sum of sigmoid(q_i . k_t / sqrt(K)) over the keys t from j to the query.

    Between whole positions the bias is interpolated; beyond the last one it stays. Each layer has
    one table e for all heads. With `divided` the bias is divided by sqrt(K) too, as in the authors'
    code. Factors on queries reach gates and bias. A position depends on all keys up to the
    query, so each block of queries holds its scores of the whole row.
    """

    attends_by_softmax = True

    table: jax.Array = trained()  # [P, K], e, starts at 0
    divided: bool = static(default=False)

    def attend(self, q, k, v, q_tokens, k_tokens):
        check_fits(self, "head_dim", q.shape[3])
        k, v, k_tokens = ascending(k, v, k_tokens, self.window)
        return by_queries(self._attend, q, k, v, q_tokens, k_tokens)

    def _attend(self, q, k, v, q_tokens, k_tokens):  # tokens with their order
        seen = visible(q_tokens, k_tokens, q.shape[2], k.shape[2], self.window, None)
        scale = self.dims.head_dim**-0.5 if self.divided else 1.0
        q_dot_e = scale * jnp.einsum(
            "bhqk,pk->bhqp", q.astype(jnp.float32), self.table, precision="highest"
        )
        common = {"dims": self.dims, "window": self.window, "topk": self.topk}
        counted = Counted(**common, seen=seen, q_dot_e=q_dot_e)
        return plain(q, k, v, counted, q_tokens, k_tokens)[0]


class Counted(Encoding):
    """CoPE, arXiv:2405.18719, of given rows."""

    seen: jax.Array  # [B or 1, 1, Q, S]
    q_dot_e: jax.Array  # [B, H, Q, P]

    def logits(self, scores, bias):
        return scores + _bias(scores, self.q_dot_e, self.seen)


def bias(scores: jax.Array, q_dot_e: jax.Array) -> jax.Array:  # [..., T, T], [..., T, P] -> first
    """Return the bias of causal rows; `scores` are divided by sqrt(K)."""
    length = scores.shape[-1]
    seen = jnp.tri(length, dtype=bool).reshape((1,) * (scores.ndim - 2) + (length, length))
    return _bias(scores, q_dot_e, seen)


def _bias(scores, q_dot_e, seen):
    gates = jnp.where(seen, jax.nn.sigmoid(scores), 0.0)
    position = jax.lax.cumsum(gates, axis=gates.ndim - 1, reverse=True)
    position = jnp.minimum(position, q_dot_e.shape[-1] - 1)
    below = jnp.floor(position)
    following = jnp.concatenate([q_dot_e[..., 1:], q_dot_e[..., -1:]], axis=-1)
    # One gather of pairs takes half the time of two.
    pairs = jnp.stack([q_dot_e, following], axis=-1)
    pairs = jnp.take_along_axis(pairs, below.astype(jnp.int32)[..., None], axis=-2)
    low, high = pairs[..., 0], pairs[..., 1]
    return low + (position - below) * (high - low)


def build(dims: Dims, *, npos: int = 64, divided: bool = False) -> Encoding:
    """Build CoPE with positions from 0 to npos - 1, a table per layer if `dims.layers`."""
    whole_number("npos", npos, at_least=2, at_most=2**16)
    table = jnp.zeros((npos, dims.head_dim))
    cope = CoPE(dims=dims, table=table, divided=flag("divided", divided))
    return cope if dims.layers is None else stack([cope] * dims.layers)
