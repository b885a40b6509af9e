"""Extensions of a learned table of positions by rows beyond the trained ones."""

import math

import numpy as np

from posenc_jax.encoding import Encoding, fixed
from posenc_jax.extensions._record import Kind, extension, float64
from posenc_jax.schemes.learned import Learned
from posenc_jax.schemes.randomized import Randomized


def _resampled(learned: Encoding) -> bool:
    if not isinstance(learned, Learned):
        return False
    return learned.table.shape[-2] != learned.train_length


TABLE = Kind("table", _resampled)
# Under randomized positions the number of rows is fixed by `max_position`.
MADE_FOR = dict(of=Learned, stops_at=(Randomized,))


@extension(TABLE, scale="given", **MADE_FOR)
def interpolate(learned: Learned, scale: float) -> Learned:
    """Stretch the table: row p is the trained row p / scale, interpolated linearly.

    Rows beyond the last trained one repeat it.
    """
    table = float64(learned.table)
    last = table.shape[-2] - 1
    place = np.minimum(np.arange(_rows(learned, scale)) / scale, last)
    below = np.floor(place).astype(int)
    share = (place - below)[:, None]
    above = np.minimum(below + 1, last)
    rows = table[..., below, :] * (1 - share) + table[..., above, :] * share
    return learned.replace(table=fixed(rows))


@extension(TABLE, scale="given", **MADE_FOR)
def clamp(learned: Learned, scale: float) -> Learned:
    """Repeat the last trained row."""
    last = learned.table.shape[-2] - 1
    rows = np.minimum(np.arange(_rows(learned, scale)), last)
    return learned.replace(table=learned.table[..., rows, :])


def _rows(learned: Learned, scale: float) -> int:
    return math.ceil(scale * learned.train_length - 1e-6)
