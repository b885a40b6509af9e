"""Passkey retrieval: a number in repeated sentences (Mohtashami and Jaggi, 2023)."""

import dataclasses

import numpy as np

from posenc_jax.data import tasks

DIGITS = 5
TALK = "The grass is green. The sky is blue. The sun is yellow. Here we go. "
LINE, QUESTION = "The key is {}. ", "What is it? "


@dataclasses.dataclass(frozen=True)
class Passkey(tasks.Probe):
    """One needle in a haystack that is the same everywhere: the easiest of tasks."""

    least = len(LINE.format("0" * DIGITS)) + len(QUESTION) + DIGITS
    chance = 1 / 10  # per digit

    def document(self, rng: np.random.Generator, training: bool) -> tuple[np.ndarray, np.ndarray]:
        length = self.length(training)
        value = "".join(map(str, rng.integers(0, 10, DIGITS)))
        line, question = LINE.format(value), QUESTION + value
        ask = length - len(question)
        start = int(rng.integers(0, ask - len(line) + 1))
        text = tasks.filled(TALK, length).copy()
        text[start : start + len(line)] = tasks.filled(line, len(line))
        text[ask:] = tasks.filled(question, len(question))
        return text, tasks.gaps_at_end(length, DIGITS, start)


Task = Passkey
