"""Answers in the longest window by their gap: accuracy against tokens back."""

from itertools import pairwise

from posenc_jax.evaluation.protocols.answers import Answers, Parts, gaps_of
from posenc_jax.evaluation.windows import Plan, Text

NEAREST = 16  # end of the first part, approximately


class Gap(Answers):
    title = "answers in the longest window by tokens back"
    order = 6
    by_part = True

    def parts(self, text: Text, plan: Plan) -> Parts:
        """Parts that double in length: `33-64` has the answers 33 to 64 tokens back."""
        if plan.length != text.longest:
            return {}
        gaps, _ = gaps_of(text, plan)
        between = pairwise([0, *ends(plan.length)])
        return {f"{low + 1}-{high}": (low < gaps) & (gaps <= high) for low, high in between}


def ends(longest: int) -> list[int]:
    """Ends of the parts, which do not depend on L: the longest length halved repeatedly."""
    halves = [longest]
    while halves[0] % 2 == 0 and halves[0] > NEAREST:
        halves.insert(0, halves[0] // 2)
    return halves


protocol = Gap()
