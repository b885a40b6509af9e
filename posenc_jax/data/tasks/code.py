"""Retrieval in source code: `x7 = 3` somewhere, and later `print(x7)  # 3`."""

import dataclasses

import numpy as np

from posenc_jax.data import stdlib, tasks
from posenc_jax.data.tasks import Drawn

NAMES = VALUES = 10
SET, ASK = "\nx{} = {}\n", "\nprint(x{})  # {}\n"
SHARE = 0.5  # largest share of settings and questions in a document


@dataclasses.dataclass(frozen=True)
class Code(tasks.Probe):
    """Gaps are uniform: up to L in training, up to `far` L in the test."""

    reads_code = True
    least = 64
    chance = 1 / VALUES

    def document(self, rng: np.random.Generator, training: bool, number: int) -> Drawn:
        length = self.length(training)
        setting, asking = len(SET.format(0, 0)), len(ASK.format(0, 0))
        text = stdlib.stretch(rng, length, not training, self.valid_fraction)
        answers, gaps = np.zeros(length, bool), np.zeros(length, np.int32)
        free = np.ones(length, bool)
        pairs = []
        # The last question ends the text, so that its answer is scored.
        places = [length - asking + 1]
        count = int(SHARE * length / (setting + asking))
        places += rng.integers(setting, length - asking, max(0, min(count, NAMES) - 1)).tolist()
        for asked in places:
            start = int(rng.integers(0, asked - setting + 1))
            here = slice(asked, asked + asking), slice(start, start + setting)
            if all(free[part].all() for part in here):
                free[here[0]] = free[here[1]] = False
                pairs.append((start, asked))
        open_until = np.full(NAMES, -1)
        for start, asked in sorted(pairs):
            name = int(rng.choice(np.flatnonzero(open_until < start)))
            open_until[name] = asked
            value = int(rng.integers(VALUES))
            text[start : start + setting] = tasks.filled(SET.format(name, value), setting)
            question = tasks.filled(ASK.format(name, value), asking)[: length - asked]
            text[asked : asked + asking] = question
            answer = asked + asking - 2
            answers[answer] = True
            gaps[answer] = answer - 1 - start
        return Drawn(text, answers, gaps)


Task = Code
