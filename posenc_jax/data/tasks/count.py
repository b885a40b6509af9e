"""Counting: how often a token occurred before a question for it.

Distance alone does not tell: names occur at random places, and the answer counts all of them.
"""

import dataclasses

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.tasks import LAST, TRIES

NAMES, MOST = 24, 8
NUMBER, ASK, NAME = 48, 65, 112  # the first byte of each kind; NUMBER is no answer


@dataclasses.dataclass(frozen=True)
class Count(tasks.Probe):
    """Each name is asked for once, after 1 to 8 occurrences.

    The gap is that to the first occurrence: uniform, up to L in training and up to `far` L in the
    test. The others lie between it and the question.
    """

    version = 2
    least = 2 * LAST
    chance = 1 / MOST

    def document(self, rng: np.random.Generator, training: bool) -> tuple[np.ndarray, np.ndarray]:
        length = self.length(training)
        text, gaps = tasks.fillers(rng, length)
        free = np.ones(length, bool)
        for rank, name in enumerate(rng.permutation(NAMES)):
            count = int(rng.integers(1, MOST + 1))
            found = self._places(rng, count, self.reach(training), free, last=rank == 0)
            if found is None:
                continue
            *places, asked = found
            text[places], text[asked], text[asked + 1] = NAME + name, ASK + name, NUMBER + count
            free[[*found, asked + 1]] = False
            gaps[asked + 1] = asked - places[0]
        return text, gaps

    def _places(
        self, rng: np.random.Generator, count: int, reach: int, free: np.ndarray, last: bool
    ) -> list[int] | None:
        """Free places of the occurrences, ascending, and of the question; None if none found."""
        length = len(free)
        lowest = length - LAST if last else MOST
        asked = rng.integers(lowest, length - 1, TRIES)
        first = asked - rng.integers(count, np.minimum(reach, asked) + 1)
        for i in np.flatnonzero(free[first] & free[asked] & free[asked + 1]):
            between = first[i] + 1 + np.flatnonzero(free[first[i] + 1 : asked[i]])
            if len(between) >= count - 1:
                chosen = rng.choice(between, count - 1, replace=False)
                return [first[i], *np.sort(chosen), asked[i]]
        return None


Task = Count
