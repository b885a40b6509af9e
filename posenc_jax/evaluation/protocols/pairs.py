"""Minimal pairs: neighbouring documents with the same tokens in different order, both to be right.

A reader that ignores order guesses between two answers and has both right in a quarter of the
pairs. Only the answer at the end of a document is scored.
"""

import numpy as np

from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers, gaps_of
from posenc_jax.evaluation.windows import Plan, Text

CHANCE = 0.25


class Pairs(Answers):
    title = "pairs of documents with the same words in different order: both answers right"
    order = 5

    def paired(self, text: Text, length: int, span: int | None) -> Plan | None:
        """Plan the last targets of documents that have a twin; a pair counts as one document."""
        plan = self.plan(text, length, span)
        first = twins(text)
        if not len(first):
            return None
        ends = plan.scored() & (np.arange(length) == length - 1)
        number = np.searchsorted(first, text.document, side="right") - 1
        paired = (number >= 0) & (text.document - first[number] <= 1) & ends.any(axis=1)
        return Plan(
            length,
            plan.starts[paired],
            number[paired],
            plan.first[paired],
            ends[paired],
            together=True,
        )

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        plan = self.paired(text, length, span)
        if plan is None or not len(plan.starts):
            return []
        gaps, seen = gaps_of(text, plan)
        facts = {"chance": CHANCE, "ceiling": float(np.mean(gaps <= seen))}
        return [Reading(text, plan, text.token_hash(plan), facts=facts)]


def twins(text: Text) -> np.ndarray:
    """First document of each pair in a text, ascending."""
    firsts: list[int] = []
    for one, other in zip(text.documents, text.documents[1:], strict=False):
        paired = bool(firsts) and firsts[-1] + 1 == one
        if other == one + 1 and not paired:
            if _are_twins(_without_answers(text, one), _without_answers(text, other)):
                firsts.append(int(one))
    return np.array(firsts, int)


def _without_answers(text: Text, number: int) -> np.ndarray:
    """Tokens of a document without its answers, which differ between twins."""
    whole = slice(*text.split.starts[number : number + 2])
    assert text.split.answers is not None
    return text.split.tokens[whole][~text.split.answers[whole]]


def _are_twins(one: np.ndarray, other: np.ndarray) -> bool:
    same = len(one) == len(other) and not np.array_equal(one, other)
    return same and np.array_equal(np.sort(one), np.sort(other))


protocol = Pairs()
