"""Letters and their digits in random order; the digit of a letter seen before is an answer."""

import dataclasses

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.tasks import Drawn
from posenc_jax.data.tasks.copy import LETTERS

DIGITS = np.frombuffer(b"0123456789", np.uint8)
PAIRS = 128


@dataclasses.dataclass(frozen=True)
class Induction(tasks.ShortText):
    """Every piece draws new digits for its letters."""

    def piece(self, rng: np.random.Generator) -> Drawn:
        digit_of = dict(zip(LETTERS.tolist(), rng.choice(DIGITS, 26).tolist(), strict=True))
        letters = rng.choice(LETTERS, PAIRS)
        again = np.ones(PAIRS, bool)
        again[np.unique(letters, return_index=True)[1]] = False
        digits = np.array([digit_of[letter] for letter in letters.tolist()], np.uint8)
        text = np.stack([letters, digits], axis=1).reshape(-1)
        answers = np.stack([np.zeros(PAIRS, bool), again], axis=1).reshape(-1)
        return Drawn(np.append(text, np.uint8(ord("\n"))), np.append(answers, False))


Task = Induction
