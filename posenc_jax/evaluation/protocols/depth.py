"""Answers by their depth in the window, at every length: the needle-in-a-haystack grid."""

from itertools import pairwise

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
        depth = 1 - gaps / np.maximum(seen, 1)
        inside = (gaps > 0) & (gaps <= seen)
        ends = pairwise(number / PARTS for number in range(PARTS + 1))
        return {
            f"{low:.1f}-{high:.1f}": inside & (low <= depth) & (depth < high) for low, high in ends
        }


protocol = Depth()
