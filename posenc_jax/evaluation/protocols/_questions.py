"""The settings behind each scored answer, and the accuracy of a reader that ignores their order."""

from typing import NamedTuple

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.evaluation.windows import Plan, Text

NEVER = np.iinfo(np.int64).max


class Questions(NamedTuple):
    """Settings behind each scored answer of a plan: earlier values of the name in question."""

    back: np.ndarray  # [N, settings], tokens from question to setting, the latest setting first
    right: np.ndarray  # [N, settings], bool: the setting gives the answer
    seen: np.ndarray  # [N], tokens in the window before the question

    @property
    def visible(self) -> np.ndarray:  # [N, settings]
        return self.back <= self.seen[:, None]

    @property
    def older(self) -> np.ndarray:  # [N], settings in the document before the last one
        return (self.back < NEVER).sum(axis=1) - 1

    @property
    def separation(self) -> np.ndarray:  # [N], tokens between the last two settings; 0: only one
        if self.back.shape[1] < 2:
            return np.zeros(len(self.back), np.int64)
        return np.where(self.back[:, 1] < NEVER, self.back[:, 1] - self.back[:, 0], 0)

    def orderless(self, chance: float) -> np.ndarray:  # [N]
        """Probability of a right answer from picking a visible setting at random, or guessing where
        none is visible."""
        visible = self.visible.sum(axis=1)
        right = (self.visible & self.right).sum(axis=1)
        return np.where(visible, right / np.maximum(visible, 1), chance)


def questions_of(text: Text, plan: Plan) -> Questions | None:
    """Questions of a plan, in the order of its scored answers; None: the task has no settings."""
    find = tasks.settings_of(text.split.task)
    if find is None:
        return None
    scored = plan.scored()
    places = plan.targets()[scored]
    begins = text.split.starts[np.searchsorted(text.split.starts, places, side="right") - 1]
    settings = [
        find(text.split.tokens[begin : place + 1])
        for begin, place in zip(begins, places, strict=True)
    ]
    most = max((len(each.back) for each in settings), default=0)
    back = np.full((len(settings), most), NEVER)
    right = np.zeros((len(settings), most), bool)
    for number, each in enumerate(settings):
        back[number, : len(each.back)] = each.back
        right[number, : len(each.back)] = each.right
    seen = np.broadcast_to(np.arange(plan.length), scored.shape)[scored]
    return Questions(back, right, seen)


def orderless(text: Text, plan: Plan) -> float | None:
    """Accuracy of a reader that picks one of the visible settings at random."""
    questions = None if text.split.chance is None else questions_of(text, plan)
    if questions is None or text.split.chance is None or not len(questions.seen):
        return None
    return float(np.mean(questions.orderless(text.split.chance)))


def restricted(plan: Plan, chosen: np.ndarray) -> Plan:  # [N], bool, of its scored answers
    """Restrict a plan to some of its scored answers."""
    kept = plan.scored()
    kept[kept] = chosen
    return plan._replace(kept=kept)
