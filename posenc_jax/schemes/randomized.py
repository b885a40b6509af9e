"""Random training positions from a longer range, for any inner encoding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import schemes
from posenc_jax.checks import flag, token_count
from posenc_jax.encoding import Dims, check_reach, static
from posenc_jax.layers import Wrapper

OPTIONS = ("inner", "max_position", "inner_length", "evenly")


class Randomized(Wrapper):
    """Ruoss et al. 2023, arXiv:2305.16843: sorted distinct positions, drawn once per pass.

    L in every formula, extensions and `logn` included, is max_position, since training covers
    positions up to there. For a pretrained model, `inner_length` sets L to its trained length:
    with yarn this is Randomized YaRN (Mehta et al. 2026, arXiv:2606.23687).
    """

    max_position: int = static()
    evenly: bool = static(default=False)

    @property
    def reach(self):
        return self.max_position if self.evenly else self.inner.reach

    @property
    def remedy(self):
        return self.inner.remedy if not self.evenly else "use a shorter length, or evenly=False"

    def positions(self, length, key=None):
        if key is not None:
            if length > self.max_position:
                raise ValueError(
                    f"cannot draw {length} different positions below max_position = "
                    f"{self.max_position}; use a shorter length or a larger max_position"
                )
            drawn = jax.random.choice(key, self.max_position, (length,), replace=False)
            return jnp.sort(drawn)
        check_reach(self, length)
        if self.evenly:
            return jnp.asarray(np.arange(length, dtype=np.int64) * self.max_position // length)
        return jnp.arange(length)

    def consecutive(self, key=None):
        return key is None and not self.evenly and self.inner.consecutive()


def build(
    dims: Dims,
    key: jax.Array | None = None,
    *,
    inner: str = "rope",
    max_position: int | None = None,
    inner_length: int | None = None,
    evenly: bool = False,
    **inner_options,
) -> Randomized:
    """Draw positions below `max_position` (None: 8 L); build the inner encoding, with the
    remaining options, for `inner_length` (None: max_position)."""
    if max_position is None:
        max_position = 8 * dims.train_length
    token_count("max_position", max_position, at_least=dims.train_length)
    if inner_length is None:
        inner_length = max_position
    token_count("inner_length", inner_length)
    inner_dims = dataclasses.replace(dims, train_length=inner_length)
    encoding = schemes.build_inner("randomized", OPTIONS, inner, inner_dims, key, inner_options)
    check_reach(encoding, max_position)
    return Randomized(
        dims=dims,
        layers=encoding.layers,
        inner=encoding.replace(layers=None),
        max_position=max_position,
        evenly=flag("evenly", evenly),
    )
