"""A bias learned as a function of the distance relative to the query position."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention import target
from posenc_jax.checks import whole_number
from posenc_jax.encoding import Dims, Encoding, check_far, fixed, position_of, trained

PARTS = 1024  # of a sum over queries and keys


class FIRE(Encoding):
    """Li et al. 2023, arXiv:2310.04418: MLP(ln(1 + c (q-k)) / ln(1 + c max(threshold, q))).

    c starts at 0.1 and the threshold at L; both are stored as logarithms, so they stay positive.
    The MLP starts uniform within 1 / sqrt(inputs). Its outputs have no bias: the softmax cancels
    a constant added to all logits of a row, so it would get no gradient.
    """

    log_c: jax.Array = trained()  # []
    log_threshold: jax.Array = trained()  # [], ln(threshold / L)
    hidden_kernel: jax.Array = trained()  # [F]
    hidden_bias: jax.Array = trained()  # [F]
    kernel: jax.Array = trained()  # [F, H]

    def bias(self, q, k):
        q_positions, k_positions = position_of(q), position_of(k)
        check_far("positions", (q_positions, k_positions))
        c, threshold = jnp.exp(self.log_c), jnp.exp(self.log_threshold) * self.train_length
        queries = q_positions[..., :, None].astype(jnp.float32)
        distance = jnp.maximum(queries - k_positions[..., None, :], 0.0)
        share = jnp.log1p(c * distance) / jnp.log1p(c * jnp.maximum(threshold, queries))
        return _mlp(share, self.hidden_kernel, self.hidden_bias, self.kernel)


@jax.custom_vjp
def _mlp(share, hidden_kernel, hidden_bias, kernel):  # [..., Q, S] -> [..., H, Q, S]
    hidden = jax.nn.relu(_inputs(share, hidden_kernel, hidden_bias))
    return _by_head(product(kernel.T, hidden), share)


def _forward(share, hidden_kernel, hidden_bias, kernel):
    """The MLP is linear in the share wherever the same hidden units are active, so values and
    gradients are sums over active units: a third of the time of automatic differentiation."""
    active = (_inputs(share, hidden_kernel, hidden_bias) > 0).astype(jnp.float32)
    of_units = jnp.concatenate([hidden_kernel[:, None] * kernel, hidden_bias[:, None] * kernel], 1)
    slope, constant = jnp.split(product(of_units.T, active), 2)  # [H, P]
    values = slope * share.reshape(1, -1) + constant
    return _by_head(values, share), (share, hidden_kernel, hidden_bias, kernel, active, slope)


def _backward(saved, gradient):
    share, hidden_kernel, hidden_bias, kernel, active, slope = saved
    gradient = jnp.moveaxis(gradient, -3, 0).reshape(len(slope), -1)
    both = jnp.concatenate([gradient * share.reshape(1, -1), gradient])
    of_slope, of_constant = jnp.split(_summed(active, both), 2, axis=1)  # [F, H]
    return (
        jnp.sum(gradient * slope, axis=0).reshape(share.shape),
        jnp.sum(kernel * of_slope, axis=1),
        jnp.sum(kernel * of_constant, axis=1),
        hidden_kernel[:, None] * of_slope + hidden_bias[:, None] * of_constant,
    )


_mlp.defvjp(_forward, _backward)


def _inputs(share, hidden_kernel, hidden_bias):  # [F, P], P the number of shares
    return hidden_kernel[:, None] * share.reshape(1, -1) + hidden_bias[:, None]


def _by_head(values, share):  # [H, P] -> [..., H, Q, S]
    return jnp.moveaxis(values.reshape(-1, *share.shape), 0, -3)


def product(a, b):
    """a @ b, where `a` is the small matrix of an MLP and `b` has a column per query and key."""
    # The barrier keeps a transpose of `a` out of the product: 1.5 times as fast on CPU.
    return jnp.dot(jax.lax.optimization_barrier(a), b, precision="highest")


def _summed(a, b):  # [F, P] and [G, P] -> [F, G]
    """a @ b.T, in parts except on a CPU: a sum over a million columns uses one multiprocessor."""
    if target.platform() == "cpu":
        return product(a, b.T)
    parts = math.gcd(a.shape[1], PARTS)
    a, b = (x.reshape(len(x), parts, -1) for x in (a, b))
    return jnp.einsum("fnp,gnp->nfg", a, b, precision="highest").sum(axis=0)


def build(dims: Dims, key: jax.Array, *, hidden: int = 32) -> FIRE:
    whole_number("hidden", hidden, at_least=1, at_most=2**16)
    keys = jax.random.split(key, 3)
    return FIRE(
        dims=dims,
        log_c=fixed(np.log(0.1)),
        log_threshold=jnp.zeros(()),
        hidden_kernel=jax.random.uniform(keys[0], (hidden,), minval=-1.0),
        hidden_bias=jax.random.uniform(keys[1], (hidden,), minval=-1.0),
        kernel=jax.random.uniform(keys[2], (hidden, dims.heads), minval=-1.0) / hidden**0.5,
    )
