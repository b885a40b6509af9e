"""What the scored answers of a text depend on, and what a reader without order makes of them."""

from typing import NamedTuple

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.evaluation.windows import Plan, Text

NEVER = np.iinfo(np.int64).max


class Questions(NamedTuple):
    """Of each scored answer of a plan; settings are what gave the asked name a value."""

    back: np.ndarray  # [N, settings], tokens from the question to each setting; the last one first
    right: np.ndarray  # [N, settings], bool: whether that setting gives the answer
    seen: np.ndarray  # [N], tokens that its window holds before the question

    @property
    def visible(self) -> np.ndarray:  # [N, settings]
        return self.back <= self.seen[:, None]

    @property
    def older(self) -> np.ndarray:  # [N], settings in the document before the last one
        return (self.back < NEVER).sum(axis=1) - 1

    @property
    def separation(self) -> np.ndarray:  # [N], tokens between the last two settings; 0: one alone
        if self.back.shape[1] < 2:
            return np.zeros(len(self.back), np.int64)
        return np.where(self.back[:, 1] < NEVER, self.back[:, 1] - self.back[:, 0], 0)

    def orderless(self, chance: float) -> np.ndarray:  # [N]
        """The chance to be right of a reader that finds every setting in its window and takes one
        at random, or guesses where there is none."""
        found = self.visible.sum(axis=1)
        right = (self.visible & self.right).sum(axis=1)
        return np.where(found, right / np.maximum(found, 1), chance)


def of(text: Text, plan: Plan) -> Questions | None:
    """The questions of a plan, in the order of its scored answers; None: the task has no order."""
    find = tasks.settings_of(text.split.task)
    if find is None:
        return None
    scored = plan.scored()
    places = plan.targets()[scored]
    begins = text.split.starts[np.searchsorted(text.split.starts, places, side="right") - 1]
    found = [
        find(text.split.tokens[begin : place + 1])
        for begin, place in zip(begins, places, strict=True)
    ]
    most = max((len(one.back) for one in found), default=0)
    back = np.full((len(found), most), NEVER)
    right = np.zeros((len(found), most), bool)
    for number, one in enumerate(found):
        back[number, : len(one.back)] = one.back
        right[number, : len(one.back)] = one.right
    seen = np.broadcast_to(np.arange(plan.length), scored.shape)[scored]
    return Questions(back, right, seen)


def orderless(text: Text, plan: Plan) -> float | None:
    """The accuracy of a reader that finds every setting in its window and takes one at random."""
    asked = None if text.split.chance is None else of(text, plan)
    if asked is None or text.split.chance is None or not len(asked.seen):
        return None
    return float(np.mean(asked.orderless(text.split.chance)))


def restricted(plan: Plan, chosen: np.ndarray) -> Plan:  # [N], bool, of its scored answers
    """The plan with some of its scored answers alone."""
    kept = plan.scored()
    kept[kept] = chosen
    return plan._replace(kept=kept)
