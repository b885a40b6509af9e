"""A task of one's own, `data.task=study.field.kth`: eight items lie anywhere in the row, and at its
end the k-th is asked for, for every k once, in random order (arXiv:2605.15514).

A gap counts from the item to its question; with it the order of the items alone tells the answer.
"""

import dataclasses

import numpy as np

from posenc_jax.data import tasks

ITEMS, LETTERS = 8, 26
FIRST, ITEM = 49, 97  # the byte of the question for the first item, and of the first letter


@dataclasses.dataclass(frozen=True)
class Kth(tasks.Probe):
    least = 4 * ITEMS
    chance = 1 / ITEMS  # among the items of the row

    def document(self, rng: np.random.Generator, training: bool) -> tuple[np.ndarray, np.ndarray]:
        length = self.length(training)
        text, gaps = tasks.fillers(rng, length)
        end = length - 2 * ITEMS
        places = np.sort(rng.choice(end, ITEMS, replace=False))
        items = ITEM + rng.choice(LETTERS, ITEMS, replace=False)
        text[places] = items
        order, asked = rng.permutation(ITEMS), end + 2 * np.arange(ITEMS)
        text[asked], text[asked + 1] = FIRST + order, items[order]
        gaps[asked + 1] = asked - places[order]
        return text, gaps


Task = Kth
