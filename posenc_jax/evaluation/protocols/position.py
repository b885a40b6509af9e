"""Loss at every place of the longest window, which shows where a model breaks."""

from collections.abc import Mapping

import numpy as np

from posenc_jax.evaluation.cells import Cell
from posenc_jax.evaluation.protocols import Protocol, by_early
from posenc_jax.evaluation.statistics import Terms
from posenc_jax.evaluation.windows import Reading, Text, plan_of


class Position(Protocol):
    title = "loss by position in the longest window"
    order = 4
    by_place = True

    def plan(self, text: Text, length: int, span: int | None = None) -> Reading | None:
        if length != text.longest:
            return None
        return plan_of(text, length, np.zeros((len(text.starts), 1), int), 0)

    def null(self, trained: int, cell: Cell, curve: Mapping[tuple[str, int], Cell]) -> Terms | None:
        """Its own curve up to L, then the mean over the last quarter of all windows of L."""
        return by_early(cell, cell, curve.get(("nonoverlap", trained), cell))


protocol = Position()
