"""Answers by their depth in the window, at every length: the needle-in-a-haystack grid."""

import numpy as np

from posenc_jax.evaluation.protocols._questions import Questions
from posenc_jax.evaluation.protocols.answers import Answers, Parts

PARTS = 10


class Depth(Answers):
    title = "answers within the window by depth: 0 is its first token, 1 the question"
    order = 7
    by_part = True

    def parts(self, questions: Questions) -> Parts:
        gaps, seen = questions.gaps, questions.seen
        inside = (gaps > 0) & (gaps <= seen)
        part = PARTS * (seen - gaps) // np.maximum(seen, 1)  # in whole numbers: 0.1 is in 0.1-0.2
        return {
            f"{number / PARTS:.1f}-{(number + 1) / PARTS:.1f}": inside & (part == number)
            for number in range(PARTS)
        }


protocol = Depth()
