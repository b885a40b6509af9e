"""Windows that tile the longest ones: what the tables of ALiBi and KERPLE show."""

import numpy as np

from posenc_jax.evaluation.protocols import Curve, Protocol, by_early
from posenc_jax.evaluation.statistics import Terms
from posenc_jax.evaluation.sums import Sums
from posenc_jax.evaluation.windows import Plan, Text, plan_of


class NonOverlap(Protocol):
    title = "non-overlapping windows, the same targets at every length"
    order = 1

    def plan(self, text: Text, length: int, span: int | None = None) -> Plan:
        """Every longest window tiled by windows of `length`; all targets are scored."""
        offsets = np.arange(0, text.longest, length)
        return plan_of(text, length, np.tile(offsets, (len(text.starts), 1)), 0)

    def null(self, trained: int, sums: Sums, curve: Curve) -> Terms | None:
        """That of windows of L, by how many tokens a target sees."""
        at_trained = curve.get((self.name, trained))
        return None if at_trained is None else by_early(sums, at_trained, at_trained)


protocol = NonOverlap()
