"""Answers by their depth in the window, at every length: the needle-in-a-haystack grid."""

import numpy as np

from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers, reading
from posenc_jax.evaluation.windows import Text

PARTS = 10


class Depth(Answers):
    title = "answers within the window by depth: 0 is its first token, 1 the question"
    order = 7
    by_part = True

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        plan = self.plan(text, length, span)
        if text.split.gaps is None:
            return []
        gaps = text.split.gaps[plan.targets()]
        place = np.arange(length)
        inside = plan.scored() & (gaps > 0) & (gaps <= place)
        depth = 1 - gaps / np.maximum(place, 1)
        readings = []
        for number in range(PARTS):
            low, high = number / PARTS, (number + 1) / PARTS
            last = number == PARTS - 1
            part = plan._replace(kept=inside & (depth >= low) & ((depth < high) | last))
            if part.scored().any():
                readings.append(reading(text, part, f"{low:.1f}-{high:.1f}"))
        return readings


protocol = Depth()
