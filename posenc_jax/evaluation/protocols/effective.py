"""Effective context: the shortest length whose loss is as good as the best."""

from collections.abc import Sequence

import numpy as np

from posenc_jax.evaluation.cells import FRESH, Cell, curve_of, label
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.statistics import paired
from posenc_jax.evaluation.windows import Text

NATS = 0.01  # per token; smaller differences are ignored


class Effective(Protocol):
    title = f"the shortest context whose same_token loss is within {NATS} nats of the best"
    order = 9
    needs = "same_token"

    def plan(self, text: Text, length: int, span: int | None) -> None:
        return None

    def derived(self, cells: Sequence[Cell]) -> list[Cell]:
        """One cell per method: the shortest length whose paired difference from the best is below
        0.01 nats, with an upper end below 0.02."""
        curves: dict[tuple, list[Cell]] = {}
        for cell in cells:
            own = cell.facts["protocol"] == self.needs and label(cell.facts) != FRESH
            if own and np.isfinite(cell.nats).all():
                curves.setdefault(curve_of(cell.facts), []).append(cell)
        return [_shortest(curve) for curve in curves.values()]


def _shortest(curve: Sequence[Cell]) -> Cell:
    best = min(curve, key=lambda cell: cell.nats.sum())
    for cell in sorted(curve, key=lambda cell: cell.facts["length"]):
        excess = paired(cell.nats, best.nats, cell.tokens)
        if cell is best or (excess.mean < NATS and excess.high < 2 * NATS):
            return cell._replace(facts=cell.facts | {"protocol": protocol.name})
    raise AssertionError("the curve contains its best cell")


protocol = Effective()
