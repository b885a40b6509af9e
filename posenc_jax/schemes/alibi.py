"""A bias proportional to the distance, with one fixed slope per head."""

from collections.abc import Sequence

import jax
import numpy as np

from posenc_jax.checks import positive, whole_number
from posenc_jax.encoding import Dims, SlopeBias, fixed


class ALiBi(SlopeBias):
    """Press et al. 2021, arXiv:2108.12409: -slope * distance."""

    slopes: jax.Array  # [H]

    def slope(self):
        return self.slopes


def slopes(heads: int) -> np.ndarray:  # [H]
    """Return 2^(-8i/H), i = 1 .. H, if H is a power of two.

    Else return the slopes of the next lower power P, then every other slope of 2 P.
    """
    heads = whole_number("heads", heads, at_least=1)
    lower = 1 << (heads.bit_length() - 1)
    coarse, between = _geometric(lower), _geometric(2 * lower)[0::2]
    return np.concatenate([coarse, between])[:heads]


def _geometric(heads: int) -> np.ndarray:
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)


_published = slopes


def build(dims: Dims, *, slopes: Sequence[float] | None = None) -> ALiBi:
    """Build ALiBi from a slope per head; None: those of the paper."""
    values = _published(dims.heads) if slopes is None else _checked(slopes, dims.heads)
    return ALiBi(dims=dims, slopes=fixed(values))


def _checked(slopes: Sequence[float], heads: int) -> list[float]:
    if np.shape(slopes) != (heads,):
        raise ValueError(f"slopes must be one number per head, {heads}; got {slopes!r}")
    return [positive("each of slopes", slope) for slope in slopes]
