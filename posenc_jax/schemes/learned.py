"""A table of vectors, one per position, added to the token embeddings."""

import jax
import jax.numpy as jnp
from jax.core import Tracer

from posenc_jax.encoding import Dims, Encoding, check_reach, trained


class Learned(Encoding):
    """Gehring et al. 2017, arXiv:1705.03122. Initial standard deviation 0.02."""

    table: jax.Array = trained()  # [L, D]

    @property
    def reach(self):
        return self.table.shape[-2]

    @property
    def remedy(self):
        return "extend it with 'interpolate' or 'clamp'"

    def embed(self, x, positions):
        if not isinstance(positions, Tracer):
            check_reach(self, int(jnp.max(positions)) + 1)
        # Under jit the check cannot run: a position outside the table gives NaN, not the last row.
        places = jnp.where(positions < 0, self.reach, positions)
        rows = self.table.at[places].get(mode="fill", fill_value=jnp.nan)
        return x + jnp.broadcast_to(rows, x.shape)


def build(dims: Dims, key: jax.Array) -> Learned:
    table = 0.02 * jax.random.normal(key, (dims.train_length, dims.width))
    return Learned(dims=dims, table=table)
