"""A table of vectors, one per position, added to the token embeddings."""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, Encoding, trained


class Learned(Encoding):
    """Gehring et al. 2017, arXiv:1705.03122. Rows start normal with standard deviation 0.02."""

    table: jax.Array = trained()  # [L, D]

    @property
    def reach(self):
        return self.table.shape[-2]

    @property
    def remedy(self):
        return "extend it with 'interpolate' or 'clamp'"

    def embed(self, x, positions):
        # A position given by hand may lie beyond the table: NaN is seen, the last row would not be.
        rows = self.table.at[positions].get(mode="fill", fill_value=jnp.nan)
        return x + jnp.broadcast_to(rows, x.shape)


def build(dims: Dims, key: jax.Array) -> Learned:
    table = 0.02 * jax.random.normal(key, (dims.train_length, dims.width))
    return Learned(train_length=dims.train_length, table=table)
