"""Copying over a delay: a word, any number of dots, a bar, the same word."""

import dataclasses

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.tasks import Drawn

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
WORD = 8


@dataclasses.dataclass(frozen=True)
class DelayedRepeat(tasks.Probe):
    least = 2 * WORD + 1
    chance = 1 / len(LETTERS)

    def document(self, rng: np.random.Generator, training: bool, number: int) -> Drawn:
        length = self.length(training)
        word = rng.choice(LETTERS, WORD)
        start = int(rng.integers(0, length - 2 * WORD))
        text = tasks.filled(".", length).copy()
        text[start : start + WORD] = word
        text[-WORD - 1] = ord("|")
        text[-WORD:] = word
        answers, gaps = np.zeros(length, bool), np.zeros(length, np.int32)
        answers[-WORD:] = True
        gaps[-WORD:] = length - WORD - 1 - start  # from the token before a letter to that letter
        return Drawn(text, answers, gaps)


Task = DelayedRepeat
