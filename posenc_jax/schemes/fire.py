"""A bias learned as a function of the distance relative to the query position."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import whole_number
from posenc_jax.encoding import Dims, Encoding, check_far, fixed, position_of, trained


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
        shape = (*share.shape, *self.hidden_bias.shape)  # [Q, S, F]
        kernel, shift = (jnp.broadcast_to(v, shape) for v in (self.hidden_kernel, self.hidden_bias))
        hidden = jax.nn.relu(share[..., None] * kernel + shift)
        return jnp.einsum("...qsf,fh->...hqs", hidden, self.kernel, precision="highest")


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
