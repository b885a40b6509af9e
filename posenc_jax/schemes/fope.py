"""Rotation where each pair turns by a trained mixture of frequencies."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import positive
from posenc_jax.encoding import Dims, fixed, trained
from posenc_jax.schemes import _rotation
from posenc_jax.schemes.rope import RoPE, drop_pairs

GAIN = 0.3  # of the numbers that the mixtures begin with, beside 1 for the own frequency


class FoPE(RoPE):
    """Hua et al. 2024, arXiv:2412.17739: in head h the cosine of pair i at position t is the sum
    over j of cosines[h, j, i] cos(theta_j t), and the sine that over sines[h, j, i] sin(theta_j t).

    i and j are the F pairs that complete a turn within L, and the others do not turn: cosine 1,
    sine 0, as in vLLM's code for Intern-S1-Pro. Public copies of the authors' code have sine 1
    there, which is no rotation, and divide each mixture by its sum. With mixtures a logit depends
    on both positions, not on their difference alone.
    """

    cosines: jax.Array = trained(kw_only=True)  # [H, F, F]
    sines: jax.Array = trained(kw_only=True)  # [H, F, F]

    def phase(self, positions):
        phase = super().phase(positions)
        turned = self.cosines.shape[-1]

        def mixed(values, mixtures):  # [B or 1, H or 1, T, R/2] -> [B or 1, H, T, R/2]
            shape = (len(values), len(mixtures), *values.shape[2:])
            every = jnp.broadcast_to(values, shape)
            own = jnp.einsum("bhtj,hji->bhti", every[..., :turned], mixtures)
            return jnp.concatenate([own, every[..., turned:]], axis=-1)

        cos, sin = mixed(phase.k_cos, self.cosines), mixed(phase.k_sin, self.sines)
        return phase.replace(q_cos=cos, q_sin=sin, k_cos=cos, k_sin=sin)


def build(dims: Dims, key: jax.Array, *, base: float = 10_000.0) -> FoPE:
    if dims.rotary_dim is not None:
        raise ValueError(
            "encoding 'fope' turns each head apart and does not fit a latent; use rope or xpos"
        )
    base = float(np.float32(positive("base", base, above=1.0)))
    turned = drop_pairs(_rotation.frequencies(base, dims.head_dim), "turned", dims.train_length)
    count = int(np.count_nonzero(turned))
    shape = dims.heads, count, count
    # Xavier's standard deviation of an array of three axes, as in copies of the authors' code
    spread = GAIN * (2 / max(1, count * (count + dims.heads))) ** 0.5
    cosines, sines = jnp.eye(count)[None, None] + spread * jax.random.normal(key, (2, *shape))
    return FoPE(
        dims=dims,
        inv_freq=fixed(turned),
        gain=fixed(1.0),
        base=fixed(base),
        keep="turned",
        cosines=cosines,
        sines=sines,
    )
