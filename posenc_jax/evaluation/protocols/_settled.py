"""What `found` and `last_of_two` share: every answer in the second half of a row, in parts within L
and beyond it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.display import Table, decimal
from posenc_jax.evaluation.cells import label
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.windows import Reading, Text, plan_of
from posenc_jax.runtime.errors import ConfigError

WANTED = 1_000  # longest windows, each with a dozen questions in its second half


class Settled(Protocol):
    about: str  # the column that it is about beyond L
    meaning: str  # of that column, in words
    order = 6
    value = "accuracy"
    by_part = True

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        if trained not in lengths:
            raise ConfigError(
                f"{self.name} compares lengths beyond L = {trained} with L: add it to lengths (1 "
                f"in multiples); got {list(lengths)}"
            )

    def wanted(self, span: int | None) -> int:
        return WANTED

    def table(self, rows: Sequence[dict]) -> Table:
        """The column that the protocol is about, and `held` below it, by method and part."""
        parts = list(dict.fromkeys(row["part"] for row in rows))
        beyond = rows[0]["length"] > rows[0]["train_length"]
        shown = (self.about, "held") if beyond or self.about == "found" else ("accuracy",)
        body = []
        for name in dict.fromkeys(map(label, rows)):
            own = {row["part"]: row for row in rows if label(row) == name}
            for column in shown:
                values = [own[part][column] if part in own else None for part in parts]
                if column == shown[0] or any(value is not None for value in values):
                    first = name if column == shown[0] else f"  {column}"
                    body.append([first, *(decimal(v, 3) for v in values)])
        meaning = self.meaning if shown[0] == self.about else "share answered with the last value"
        return Table(f"{shown[0]}: {meaning}", ["", *parts], body)

    def plan(self, text: Text, length: int, span: int | None) -> Reading:
        """Windows of a length over the second half of each longest one, or that one, and the
        answers in the second half of each."""
        if text.split.answers is None or tasks.settings_of(text.split.task) is None:
            raise ConfigError(
                f"{self.name} needs a text that sets names to values: evaluate a run of "
                "data.source=synthetic and data.task=variables"
            )
        offsets = np.arange(text.longest // 2, text.longest - length + 1, length)
        offsets = np.broadcast_to(
            offsets if len(offsets) else np.array([text.longest - length]),
            (len(text.starts), max(1, len(offsets))),
        )
        reading = plan_of(text, length, offsets, length // 2)
        return replace(reading, kept=text.split.answers[reading.targets()])
