"""What is measured in a cell, before it becomes a row."""

from typing import NamedTuple

import numpy as np


class Sums(NamedTuple):
    """What was measured in a cell, in float64: of every document, and by place in the window.

    Beside the scored targets stand those of all windows that were read, for the null model: with
    fewer than L tokens before them (`within`), and of these the last quarter (`tail`).
    """

    nats: np.ndarray  # [D]
    tokens: np.ndarray  # [D]
    bytes: np.ndarray  # [D]; 0 where tokens do not hold the text
    answers: np.ndarray  # [D], marked targets
    right: np.ndarray  # [D], of them
    early: np.ndarray  # [D], scored targets that see L tokens or fewer
    within_nats: np.ndarray  # [D]
    within_tokens: np.ndarray  # [D]
    tail_nats: np.ndarray  # [D]
    tail_tokens: np.ndarray  # [D]
    by_place: np.ndarray  # [length], nats over all windows; empty where places are not compared
    windows: np.ndarray  # [1]

    def check(self) -> None:
        """Whether arrays that were read are those of one cell."""
        if any(array.ndim != 1 for array in self) or len(self.windows) != 1:
            raise ValueError("arrays of a cell have one axis")
        if len({len(getattr(self, name)) for name in DOCUMENTS}) != 1:
            raise ValueError("arrays of a cell have one entry for each document")


DOCUMENTS = Sums._fields[:10]


class Measured(NamedTuple):
    """A cell: what it is, as columns of its row, and what was measured."""

    facts: dict
    sums: Sums
