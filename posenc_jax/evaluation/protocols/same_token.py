"""The last targets of each longest window from increasing context, so that only context changes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posenc_jax.evaluation.cells import FRESH, Cell, label
from posenc_jax.evaluation.columns import Column
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.statistics import Terms
from posenc_jax.evaluation.windows import Reading, Text, plan_of
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.terminal import counted

TARGETS = 2_000  # with fewer, the mean depends on the choice of targets
LAST = Column("targets per window of same_token and its kin; tokens of a block of riffle", int)


class LastTargets(Protocol):
    """The last targets of every longest window, at every length."""

    option = "last"
    columns = {"last": LAST}
    value = "bpb"

    def span(self, config: Any, trained: int, lengths: Sequence[int]) -> int:
        return config.last or max(1, min(lengths) // 4)

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        """At L and beyond, a target sees three quarters of the length or more."""
        assert span is not None
        shortest = min(lengths)
        most = min(max(trained, shortest) // 4, shortest)
        if span > most:
            raise ConfigError(
                f"last must be at most {most}: the shortest length, {shortest}, and a quarter of L "
                f"= {trained}, or of the shortest length beyond it, so that context differs little "
                f"between its targets; got {span}"
            )

    def plan(self, text: Text, length: int, span: int | None) -> Reading:
        """One window of `length` at the end of each longest one, scored on its last `span`
        targets."""
        assert span is not None
        offsets = np.full((len(text.starts), 1), text.longest - length)
        return plan_of(text, length, offsets, length - span)

    def null(self, trained: int, cell: Cell, curve: Mapping[tuple[str, int], Cell]) -> Terms | None:
        """Its own value at L, over the same targets."""
        at_trained = curve.get((self.name, trained))
        return None if at_trained is None else [(1.0, at_trained.nats, at_trained.tokens)]

    def wanted(self, span: int | None) -> int:
        return -(-TARGETS // (span or 1))

    def warning(self, windows: int, span: int | None) -> str | None:
        targets = windows * (span or 1)
        if targets >= TARGETS:
            return None
        return (
            f"{self.name} scores {counted(targets, 'target')}, and below about {TARGETS:,} its "
            "mean depends on the choice of targets: give more text, raise windows or documents, or "
            "omit the shortest multiples"
        )


class SameToken(LastTargets):
    title = "the same targets at every length, each seen with as much context as fits"
    order = 2

    def derived(self, cells: Sequence[Cell]) -> list[Cell]:
        """The baseline `fresh`, a row of at most the last L tokens: beyond L, `none` at L."""
        plain = {
            cell.facts["length"]: cell
            for cell in cells
            if (cell.facts["protocol"], label(cell.facts)) == (self.name, "none")
        }
        trained = next((cell.facts["train_length"] for cell in plain.values()), None)
        if trained is None or trained not in plain or trained == max(plain):
            return []
        return [
            plain[min(length, trained)]._replace(facts=cell.facts | {"extension": FRESH})
            for length, cell in plain.items()
        ]


protocol = SameToken()
