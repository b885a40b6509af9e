"""Answers in the longest window by their gap: accuracy against tokens back."""

from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers, reading
from posenc_jax.evaluation.windows import Text

NEAREST = 16  # end of the first part, approximately


class Gap(Answers):
    title = "answers in the longest window by tokens back"
    order = 6
    by_part = True

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Readings of parts that double in length: `33-64` has the answers 33 to 64 tokens back."""
        if length != text.longest:
            return []
        plan = self.plan(text, length, span)
        readings = []
        low = 0
        for high in ends(length):
            gaps = text.split.gaps[plan.targets()] if text.split.gaps is not None else 0
            part = plan._replace(kept=plan.scored() & (gaps > low) & (gaps <= high))
            if part.scored().any():
                readings.append(reading(text, part, f"{low + 1}-{high}"))
            low = high
        return readings


def ends(longest: int) -> list[int]:
    """Ends of the parts, which do not depend on L: the longest length halved repeatedly."""
    halves = [longest]
    while halves[0] % 2 == 0 and halves[0] > NEAREST:
        halves.insert(0, halves[0] // 2)
    return halves


protocol = Gap()
