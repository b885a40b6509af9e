"""Ordinary text whose far context is shuffled, reversed, dropped or another document's.

How much the same last targets lose says how far back order, or anything, is read at all (Khandelwal
et al., 2018, arXiv:1805.04623). Nothing is trained for it.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.same_token import SameToken
from posenc_jax.evaluation.windows import Text, plan_of

# Far contexts [W, F] and the documents of their windows [W] -> the same [W, F]
Change = Callable[[np.ndarray, np.ndarray], np.ndarray]

CHANGES: dict[str, Change] = {
    "shuffled": lambda far, document: np.random.default_rng(0).permuted(far, axis=1),
    "reversed": lambda far, document: far[:, ::-1],
    "swapped": lambda far, document: np.roll(far, _most_of_one(document), axis=0),
}
NEAREST = 4


def _most_of_one(document: np.ndarray) -> int:
    """Windows of the document that has the most: so far back stands none of one's own."""
    return int(np.unique(document, return_counts=True)[1].max())


class Order(SameToken):
    title = "the same targets, and what lies beyond some distance changed"
    order = 8
    by_part = True

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """At L and at the longest length: `shuffled-16` is the text before the last 16 tokens
        shuffled, `dropped-16` not there at all."""
        assert span is not None
        if length not in (trained, text.longest):
            return []
        whole = self.plan(text, length, span)
        scored = text.token_hash(whole)
        found = [Reading(text, whole, scored, "whole")]
        near, changes = NEAREST, changes_of(text.document)
        # Before the first scored target lie length - span tokens; the last ones are kept.
        while near < length - span:
            for name, change in changes.items():
                own, plan = changed(text, length, span, near, change)
                found.append(Reading(own, plan, scored, f"{name}-{near}"))
            found.append(Reading(text, self._dropped(text, near, span), scored, f"dropped-{near}"))
            near *= 2
        return found

    def _dropped(self, text: Text, near: int, span: int):
        """Windows that begin `near` tokens before the first scored target."""
        length = near + span - 1  # and the last target, which is not read
        offsets = np.full((len(text.starts), 1), text.longest - length)
        return plan_of(text, length, offsets, near - 1)


def changes_of(document: np.ndarray) -> dict[str, Change]:
    """Not `swapped` where one document has more than half of the windows."""
    alone = 2 * _most_of_one(document) > len(document)
    return {name: change for name, change in CHANGES.items() if not (alone and name == "swapped")}


def changed(text: Text, length: int, span: int, near: int, change: Change):
    """The windows of a length in a text of their own, with the far context of each changed."""
    split = text.split
    begin = text.starts + text.longest - length
    rows = np.array(split.tokens[begin[:, None] + np.arange(length + 1)])
    far = length - span - near + 1
    rows[:, :far] = change(rows[:, :far], text.document)
    starts = np.arange(len(rows)) * (length + 1)

    def taken(column):
        return None if column is None else column[begin[:, None] + np.arange(length + 1)].ravel()

    document = np.searchsorted(text.documents, text.document)
    own = dataclasses.replace(
        split,
        tokens=rows.ravel(),
        starts=np.append(starts, rows.size),
        bytes_of=taken(split.bytes_of),
        answers=taken(split.answers),
        gaps=None,
    )
    inner = dataclasses.replace(
        text, split=own, document=np.arange(len(rows)), starts=starts, longest=length
    )
    plan = plan_of(inner, length, np.zeros((len(rows), 1), int), length - span)
    return inner, plan._replace(document=document)


protocol = Order()
