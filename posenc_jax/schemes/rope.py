"""Rotation of queries and keys by angles proportional to their positions."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import choice, flag, positive, rotary_dims
from posenc_jax.encoding import Dims, Encoding, Phase, check_far, fixed, static, trained
from posenc_jax.layers import stack
from posenc_jax.schemes import _rotation


class RoPE(Encoding):
    """Su et al. 2021, arXiv:2104.09864.

    `keep` sets the frequency of slow pairs to 0: a share p keeps the int(p R / 2) fastest of the
    R / 2 pairs (p-RoPE, Barbero et al. 2024, arXiv:2410.06205), and "turned" keeps those that
    complete a turn within L (HoPE, Chen et al. 2024, arXiv:2410.21216). Trained frequencies are
    inv_freq exp(alpha), where alpha starts at 0 and is shared, per layer or per head.

    With `imaginary` the second half of the heads turns its queries by a further -pi / 2, so its
    scores are the imaginary part of the complex product (RoPE++, Liu et al. 2025,
    arXiv:2512.07525).

    `gain` multiplies cos and sin, hence the logits by its square. Where the rotated entries are
    apart from the content (MLA), it multiplies the whole logits by its square, as DeepSeek does.
    """

    inv_freq: jax.Array  # [R/2], or [H, R/2]; before alpha
    gain: jax.Array  # [], or [H, R/2]
    base: jax.Array  # [], or [H]; the base of inv_freq, for extensions
    alpha: jax.Array | None = trained(default=None)
    layout: str = static(default="half")
    keep: float | str = static(default=1.0)
    # [] each: least and largest s of a factor (c ln s + 1)^2 on the logits of a query, where s is
    # its (position + 1) / L, and c.
    stretch: tuple[jax.Array, jax.Array, jax.Array] | None = None
    # As inv_freq, in rows of up to L tokens, if it is another there; `for_rows` chooses.
    short: jax.Array | None = None
    imaginary: bool = static(default=False)

    phase_of_each = True

    @property
    def freq(self) -> jax.Array:  # [R/2], or [H, R/2]
        """The angle per position of each pair."""
        if self.alpha is None:
            return self.inv_freq
        shape = jnp.broadcast_shapes(self.inv_freq.shape, self.alpha.shape)  # equal rank
        return jnp.broadcast_to(self.inv_freq, shape) * jnp.exp(jnp.broadcast_to(self.alpha, shape))

    def for_rows(self, length):
        if self.short is None:
            return self
        is_short = length <= self.train_length
        return self.replace(inv_freq=self.short if is_short else self.inv_freq, short=None)

    def phase(self, positions):
        if self.short is not None:
            raise ValueError(
                f"frequencies of encoding {self.name!r} depend on the length of the rows: choose "
                "them by encoding.for_rows(length)"
            )
        cos, sin = _rotation.cos_sin(positions_by_head(positions), by_head(self.freq))
        if self.gain.ndim == 1:
            raise ValueError(f"gain must be one number or [H, R/2]; got {self.gain.shape}")
        if self.dims.rotary_dim is None:
            cos, sin = by_head(self.gain) * cos, by_head(self.gain) * sin
        q_cos, q_sin = cos, sin
        if self.imaginary:
            is_real = (np.arange(self.dims.heads) < self.dims.heads // 2)[None, :, None, None]
            q_cos, q_sin = jnp.where(is_real, cos, sin), jnp.where(is_real, sin, -cos)
        return Phase(q_cos=q_cos, q_sin=q_sin, k_cos=cos, k_sin=sin, layout=self.layout)

    def query_scale(self, positions):
        factors = [super().query_scale(positions)]
        if self.dims.rotary_dim is not None:
            factors.append(jnp.broadcast_to(self.gain**2, positions.shape))
        if self.stretch is not None:
            least, most, coefficient = self.stretch
            s = jnp.clip((positions + 1) / self.train_length, least, most)
            factors.append((coefficient * jnp.log(s) + 1) ** 2)
        factors = [factor for factor in factors if factor is not None]
        product: Any = math.prod(factors)
        return product if factors else None


def by_head(field: jax.Array) -> jax.Array:  # [], [R/2], [H, R/2] -> [1, H or 1, 1, R/2 or 1]
    return jnp.atleast_2d(field)[None, :, None, :]


def positions_by_head(positions: jax.Array) -> jax.Array:  # [T], [B, T] -> [B or 1, 1, T, 1]
    check_far("positions", positions)
    return jnp.atleast_2d(positions)[:, None, :, None]


def build(
    dims: Dims,
    *,
    base: float | Sequence[float] = 10_000.0,
    fraction: float = 1.0,
    layout: str = "half",
    keep: float | str = 1.0,
    frequencies: str = "fixed",
    per: str = "none",
    imaginary: bool = False,
) -> RoPE:
    """Build RoPE from one base, or from one base per head."""
    rotary = rotary_dims(dims.head_dim, fraction, dims.rotary_dim)
    bases = base_per_head(base, dims.heads)
    choice("per", per, ("none", "layer", "head"))
    is_trained = choice("frequencies", frequencies, ("fixed", "trained")) == "trained"
    if per != "none" and not is_trained:
        raise ValueError(f"per={per!r} has no effect without frequencies='trained'")
    if per == "head":
        bases = np.broadcast_to(bases, (dims.heads,))
    if flag("imaginary", imaginary) and dims.heads % 2:
        raise ValueError(f"imaginary=True needs an even number of heads; got {dims.heads}")
    keep = check_keep(keep)
    inv_freq = drop_pairs(_rotation.frequencies(bases, rotary), keep, dims.train_length)
    shape = inv_freq.shape if per == "head" else (1,) * (inv_freq.ndim - 1) + inv_freq.shape[-1:]
    rope = RoPE(
        dims=dims,
        inv_freq=fixed(inv_freq),
        gain=fixed(1.0),
        base=fixed(bases),
        alpha=jnp.zeros(shape) if is_trained else None,
        layout=choice("layout", layout, ("half", "interleaved")),
        keep=keep,
        imaginary=imaginary,
    )
    if per != "layer":
        return rope
    if dims.layers is None:
        raise ValueError("per='layer' needs the number of layers: give Dims(layers=...)")
    stacked: Any = stack([rope] * dims.layers)
    return stacked


def check_keep(keep) -> float | str:
    """Check the option `keep`: 'turned', or the share of pairs to keep."""
    if isinstance(keep, str) and keep == "turned":
        return keep
    if isinstance(keep, Real) and not isinstance(keep, bool) and keep <= 1 and not keep < 0:
        return float(keep)
    raise ValueError(f"keep must be 'turned' or a number from 0 to 1; got {keep!r}")


def drop_pairs(theta: np.ndarray, keep: float | str, length: int) -> np.ndarray:  # [..., R/2]
    """Set the frequencies of dropped pairs to 0."""
    if isinstance(keep, str):
        return np.where(length * theta >= 2 * np.pi, theta, 0.0)
    pairs = theta.shape[-1]
    return np.where(np.arange(pairs) < int(keep * 2 * pairs // 2), theta, 0.0)


def base_per_head(base: float | Sequence[float] | np.ndarray, heads: int) -> np.ndarray:
    """Return bases [] or [H] rounded to float32, as extensions read them."""
    values = np.asarray(base, object)
    bases = np.array([_base(value) for value in values.reshape(-1)])
    if values.ndim == 0:
        return bases[0]
    if bases.shape != (heads,):
        raise ValueError(
            f"base must be one number or one per head, {heads}; got {len(bases)} numbers"
        )
    return bases


def _base(value) -> float:
    return float(np.float32(positive("base", value, above=1.0)))
