"""Multi-query associative recall: pairs of a key and a value, and later each key again (Arora et
al., 2023, arXiv:2312.04927).

The number of pairs is the same at every length, so that distance alone grows.
"""

import dataclasses

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.fields import default, whole

KEYS, VALUES = 64, 64
KEY, VALUE = 64, 128  # the first byte of each kind


@dataclasses.dataclass(frozen=True)
class MQAR(tasks.Probe):
    """Every key stands twice, each time with its value after it; the second value is an answer.

    Distances are those of two random places: up to L in training, up to `far` L in the test.
    """

    pairs: int = default(8, "keys of a document", whole(1, KEYS))

    chance = 1 / VALUES

    def __post_init__(self):
        if self.train_length < 4 * self.pairs:
            raise ValueError(
                f"L must be at least 4 * pairs = {4 * self.pairs}, to hold keys and values twice; "
                f"got {self.train_length}"
            )

    def document(self, rng: np.random.Generator, training: bool) -> tuple[np.ndarray, np.ndarray]:
        length, count = self.length(training), 2 * self.pairs
        text, gaps = tasks.fillers(rng, length)
        # A question ends the text, so that every window scores one.
        places = np.append(tasks.apart(rng, count - 1, length - 2, 2), length - 2)
        halves = np.sort(rng.permutation(places).reshape(self.pairs, 2), axis=1)
        keys = KEY + rng.choice(KEYS, self.pairs, replace=False)
        values = VALUE + rng.integers(VALUES, size=self.pairs)
        for (first, second), key, value in zip(halves, keys, values, strict=True):
            text[[first, second]], text[[first + 1, second + 1]] = key, value
            gaps[second + 1] = second - first
        return text, gaps


Task = MQAR
