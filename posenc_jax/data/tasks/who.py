"""Who chased whom: minimal pairs that differ in the order of two words alone.

Sentences of three tokens, noun, verb, noun; then, a distance later, the question for one of the
two. Every document stands beside its twin, in which the two nouns of every sentence have changed
places, and with them the answers: both are right only for one who reads order. No two nouns
of one sentence of the test stand together in a sentence of training.
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
EVERY = 4  # tokens to a sentence or question, on the average


@dataclasses.dataclass(frozen=True)
class Who(tasks.Probe):
    """Distances are uniform: up to L in training, up to `far` L in the test."""

    chance = 1 / NOUNS  # where the sentence is not seen; one half, knowing its nouns, not the order
    twins = 2
    version = 3

    def __post_init__(self):
        if self.train_length < 2 * LAST:
            raise ValueError(f"L must be at least {2 * LAST}; got {self.train_length}")

    def document(self, rng: np.random.Generator, training: bool, number: int) -> Drawn:
        length = self.length(training)
        text = rng.integers(FILLER, FILLER + FILLERS, length)
        answers, gaps = np.zeros(length, bool), np.zeros(length, np.int32)
        # Stretches of three tokens, each a sentence or a question; a question ends the text, so
        # that one is scored in every window.
        stretches = np.append(tasks.apart(rng, length // EVERY - 1, length - 3, 3), length - 3)
        told = min(VERBS, len(stretches) // 3)
        is_sentence = np.isin(
            np.arange(len(stretches)), rng.choice(len(stretches) - 1, told, False)
        )
        sentences: list[tuple[int, int, np.ndarray]] = []  # start, verb and nouns
        verbs = iter(rng.permutation(VERBS))
        for start, tells in zip(stretches, is_sentence, strict=True):
            here = slice(start, start + 3)
            if tells:
                verb, pair = next(verbs), _pair(rng, training)
                pair = pair[::-1] if number % 2 else pair
                text[here] = NOUN + pair[0], VERB + verb, NOUN + pair[1]
                sentences.append((start, verb, pair))
            elif sentences:
                begin, verb, pair = sentences[rng.integers(len(sentences))]
                which = rng.integers(2)
                text[here] = (WHO, WHOM)[which], VERB + verb, NOUN + pair[which]
                answers[start + 2] = True
                gaps[start + 2] = start + 1 - begin
        return Drawn(text.astype(np.uint8), answers, gaps)


def _pair(rng: np.random.Generator, training: bool) -> np.ndarray:  # [2]
    """Two nouns that training, or the test, puts into one sentence."""
    while True:
        pair = rng.choice(NOUNS, 2, replace=False)
        if training == bool(pair.sum() % TESTED):
            return pair


Task = Who
