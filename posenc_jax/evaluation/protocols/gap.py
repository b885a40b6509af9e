"""Answers in the longest window by their gap: accuracy against tokens back."""

from itertools import pairwise

from posenc_jax.evaluation.protocols._questions import Questions
from posenc_jax.evaluation.protocols.answers import Answers, Parts

NEAREST = 16  # end of the first part, approximately


class Gap(Answers):
    title = "answers in the longest window by tokens back"
    order = 6
    by_part = True

    def parts(self, questions: Questions) -> Parts:
        """Parts that double in length: `33-64` has the answers 33 to 64 tokens back."""
        gaps, length = questions.gaps, questions.reading.length
        if length != questions.reading.text.longest:
            return {}
        between = pairwise([0, *ends(length)])
        return {f"{low + 1}-{high}": (low < gaps) & (gaps <= high) for low, high in between}


def ends(longest: int) -> list[int]:
    """Ends of the parts, which do not depend on L: the longest length halved repeatedly."""
    halves = [longest]
    while halves[0] % 2 == 0 and halves[0] > NEAREST:
        halves.insert(0, halves[0] // 2)
    return halves


protocol = Gap()
