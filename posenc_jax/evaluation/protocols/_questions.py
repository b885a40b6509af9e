"""The questions behind the scored answers of a reading, and what a reader can know of them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.evaluation.columns import Column
from posenc_jax.evaluation.windows import Reading

NEVER = np.iinfo(np.int64).max
OF_ANSWERS = {
    "chance": Column("accuracy of a guess", float),
    "ceiling": Column("accuracy of a reader that finds every setting in its window", float),
    "orderless": Column("accuracy of a reader without order (variables, revised)", float),
}
OF_SETTINGS = OF_ANSWERS | {"older": Column("older settings of the asked names", int)}
SEPARATION = Column("tokens between the last two settings (last_of_two, revised)", str)


class Settings(NamedTuple):
    """Earlier values of the name in each question."""

    back: np.ndarray  # [N, settings], tokens from question to setting, the latest setting first
    answer: np.ndarray  # [N, settings], the token that the setting gives as the answer; -1: none
    right: np.ndarray  # [N, settings], bool: that is the answer
    visible: np.ndarray  # [N, settings], bool: the setting lies in the window

    @property
    def older(self) -> np.ndarray:  # [N], settings in the document before the last one
        return (self.back < NEVER).sum(axis=1) - 1

    @property
    def separation(self) -> np.ndarray:  # [N], tokens between the last two settings; 0: only one
        if self.back.shape[1] < 2:
            return np.zeros(len(self.back), np.int64)
        return np.where(self.back[:, 1] < NEVER, self.back[:, 1] - self.back[:, 0], 0)


@dataclass(frozen=True)
class Questions:
    """The scored answers of a reading, [N] in order."""

    reading: Reading

    @cached_property
    def places(self) -> np.ndarray:  # [N], of the answers in the split
        return self.reading.targets()[self.reading.scored()]

    @cached_property
    def seen(self) -> np.ndarray:  # [N], tokens in the window before the question
        return np.nonzero(self.reading.scored())[1]

    @cached_property
    def gaps(self) -> np.ndarray:  # [N], tokens back to what answers it; 0: unknown
        gaps = self.reading.text.split.gaps
        return np.zeros(len(self.places), int) if gaps is None else gaps[self.places]

    @cached_property
    def settings(self) -> Settings | None:
        """None where the task has no settings."""
        split = self.reading.text.split
        find = tasks.settings_of(split.task)
        if find is None:
            return None
        begins = split.starts[np.searchsorted(split.starts, self.places, side="right") - 1]
        found = [
            find(split.tokens[begin : place + 1])
            for begin, place in zip(begins, self.places, strict=True)
        ]
        most = max((len(each.back) for each in found), default=0)
        back = np.full((len(found), most), NEVER)
        answer = np.full((len(found), most), -1)
        for number, each in enumerate(found):
            back[number, : len(each.back)] = each.back
            answer[number, : len(each.back)] = each.answer
        right = answer == split.tokens[self.places][:, None]
        return Settings(back, answer, right, back <= self.seen[:, None])

    def ceiling(self, chosen: np.ndarray) -> float | None:
        """Accuracy on some of them of a reader that finds every answer in its window and guesses
        the rest."""
        split = self.reading.text.split
        if split.chance is None or split.gaps is None:
            return None
        return tasks.ceiling(split.chance, self.gaps[chosen], self.seen[chosen])

    def orderless(self, chosen: np.ndarray) -> float | None:
        """Accuracy on some of them of a reader that picks a visible setting at random, and guesses
        where none is visible."""
        chance, settings = self.reading.text.split.chance, self.settings
        if chance is None or settings is None:
            return None
        visible = settings.visible.sum(axis=1)
        right = (settings.visible & settings.right).sum(axis=1)
        return float(np.mean(np.where(visible, right / np.maximum(visible, 1), chance)[chosen]))


def restricted(
    reading: Reading,
    chosen: np.ndarray,  # [N], bool, of its scored answers
    **options: Any,
) -> Reading:
    """Restrict a reading to some of its scored answers; options are other fields of it."""
    kept = reading.scored()
    kept[kept] = chosen
    return replace(reading, kept=kept, **options)


def doubling(values: np.ndarray, most: int) -> dict[str, np.ndarray]:
    """Ranges that double, and which values lie in each: `1`, `2`, `3-4`, `5-8`, ..."""
    parts, low, high = {}, 0, 1
    while low < most:
        name = f"{low + 1}-{high}" if low + 1 < high else str(high)
        parts[name] = (low < values) & (values <= high)
        low, high = high, 2 * high
    return {name: chosen for name, chosen in parts.items() if chosen.any()}
