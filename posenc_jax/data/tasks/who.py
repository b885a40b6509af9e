"""Word order: minimal pairs of documents that differ only in the order of two nouns.

Sentences are noun, verb, noun; later a question asks for one of the nouns. Each document has a twin
with the two nouns of every sentence, and so the answers, swapped, so that only a reader of order
gets both right. No pair of nouns in a test sentence occurs in a training sentence.
"""

import dataclasses

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.tasks import Drawn

FILLERS, NOUNS, VERBS = 16, 40, 20
FILLER, VERB, NOUN = 32, 64, 128  # the first byte of each kind
WHO, WHOM = 97, 98
LAST = 16  # scored tokens, which include the question
TESTED = 5  # one in this many pairs of nouns is for the test
EVERY = 4  # mean tokens per sentence or question


@dataclasses.dataclass(frozen=True)
class Who(tasks.Probe):
    """Distances are uniform: up to L in training, up to `far` L in the test."""

    least = 2 * LAST
    chance = 1 / NOUNS  # without the sentence; one half with its nouns but not their order
    twins = 2
    version = 3

    def document(self, rng: np.random.Generator, training: bool, number: int) -> Drawn:
        length = self.length(training)
        text = rng.integers(FILLER, FILLER + FILLERS, length)
        answers, gaps = np.zeros(length, bool), np.zeros(length, np.int32)
        # Each stretch of three tokens is a sentence or a question; a question ends the text, so
        # that every window scores one.
        stretches = np.append(tasks.apart(rng, length // EVERY - 1, length - 3, 3), length - 3)
        sentence_count = min(VERBS, len(stretches) // 3)
        is_sentence = np.isin(
            np.arange(len(stretches)), rng.choice(len(stretches) - 1, sentence_count, False)
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
    """Pair of nouns for a sentence of training, or of the test."""
    while True:
        pair = rng.choice(NOUNS, 2, replace=False)
        if training == bool(pair.sum() % TESTED):
            return pair


Task = Who
