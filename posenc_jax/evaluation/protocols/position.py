"""Loss at every place of the longest window, which shows where a model breaks."""

import numpy as np

from posenc_jax.evaluation.cells import Sums
from posenc_jax.evaluation.protocols import Curve, Protocol, by_early
from posenc_jax.evaluation.statistics import Terms
from posenc_jax.evaluation.windows import Plan, Text, plan_of


class Position(Protocol):
    title = "loss by position in the longest window"
    order = 4
    by_place = True

    def plan(self, text: Text, length: int, span: int | None = None) -> Plan | None:
        if length != text.longest:
            return None
        return plan_of(text, length, np.zeros((len(text.starts), 1), int), 0)

    def null(self, trained: int, sums: Sums, curve: Curve) -> Terms | None:
        """Its own curve up to L, then the mean over the last quarter of all windows of L."""
        return by_early(sums, sums, curve.get(("nonoverlap", trained), sums))


protocol = Position()
