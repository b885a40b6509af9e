"""A letter many times; written by a test."""

import dataclasses

import numpy as np

from posenc_jax.data.tasks import Drawn, ShortText
from posenc_jax.fields import default, whole


@dataclasses.dataclass(frozen=True)
class Letters(ShortText):
    repeats: int = default(3, "how many times each letter stands", whole(1))

    def piece(self, rng):
        return Drawn(
            np.full(self.repeats, rng.integers(97, 123), np.uint8), np.arange(self.repeats) > 0
        )


Task = Letters
