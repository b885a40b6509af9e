"""Who chased whom: minimal pairs that differ in the order of two words alone.

Sentences of three tokens, noun, verb, noun; then, a distance later, the question for one of the
two. Every document stands beside its twin, in which the two nouns of every sentence have changed
places, and with them the answers: both are right only for one who reads order. Which nouns stand in
one sentence of the test, no sentence of training tells.
"""

import dataclasses

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.tasks import Drawn

FILLERS, NOUNS, VERBS = 16, 40, 20
FILLER, VERB, NOUN = 32, 64, 128  # the first byte of each kind
WHO, WHOM = 97, 98
LAST = 16  # the tokens that are scored; the question is among them
TESTED = 5  # one pair of nouns in so many is the test's


@dataclasses.dataclass(frozen=True)
class Who(tasks.Task):
    """Distances are uniform: up to L in training, up to `far` L in the test."""

    chance = 1 / NOUNS  # where the sentence is not seen; one half, knowing its nouns, not the order
    twins = 2
    version = 2

    def __post_init__(self):
        if self.train_length < 2 * LAST:
            raise ValueError(f"L must be at least {2 * LAST}; got {self.train_length}")

    def document(self, rng: np.random.Generator, training: bool, number: int) -> Drawn:
        length = self.length(training)
        text = rng.integers(FILLER, FILLER + FILLERS, length)
        answers, gaps = np.zeros(length, bool), np.zeros(length, np.int32)
        free = np.ones(length, bool)
        # The first question ends with the text: it is scored in every window.
        asked_at = np.append(length - 3, rng.integers(3, length - 5, VERBS - 1))
        for verb, asked in zip(rng.permutation(VERBS), asked_at, strict=True):
            start = int(rng.integers(0, asked - 2))
            pair = _pair(rng, training)
            is_who = bool(rng.integers(2))
            if not (free[asked : asked + 3].all() and free[start : start + 3].all()):
                continue
            free[asked : asked + 3] = free[start : start + 3] = False
            chaser, chased = pair[::-1] if number % 2 else pair
            text[start : start + 3] = NOUN + chaser, VERB + verb, NOUN + chased
            answer = chaser if is_who else chased
            text[asked : asked + 3] = WHO if is_who else WHOM, VERB + verb, NOUN + answer
            answers[asked + 2] = True
            gaps[asked + 2] = asked + 1 - start
        return Drawn(text.astype(np.uint8), answers, gaps)


def _pair(rng: np.random.Generator, training: bool) -> np.ndarray:  # [2]
    """Two nouns that training, or the test, puts into one sentence."""
    while True:
        pair = rng.choice(NOUNS, 2, replace=False)
        if training == bool(pair.sum() % TESTED):
            return pair


Task = Who
