"""Letters, a bar, the same letters again."""

import dataclasses

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.tasks import Drawn

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
WORD = 32  # letters


@dataclasses.dataclass(frozen=True)
class Copy(tasks.ShortText):
    """Solved within 33 tokens; where a document is cut, so is its last piece."""

    def piece(self, rng: np.random.Generator) -> Drawn:
        word = rng.choice(LETTERS, WORD)
        bar, end = np.frombuffer(b"|", np.uint8), np.frombuffer(b"\n", np.uint8)
        marks = np.zeros(2 * WORD + 2, bool)
        marks[WORD + 1 : -1] = True
        return Drawn(np.concatenate([word, bar, word, end]), marks)


Task = Copy
