"""Answers by how far back they lie, in the longest window: who finds what, from how far."""

from posenc_jax.evaluation import questions
from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers
from posenc_jax.evaluation.windows import Text

NEAREST = 16  # where the first part ends, about


class Gap(Answers):
    title = "answers of the longest window by how many tokens back they lie"
    order = 6
    by_part = True

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Parts end at halves of the longest length: `33-64` is all from 33 to 64 tokens back."""
        if length != text.longest:
            return []
        plan = self.plan(text, length, span)
        found = []
        low = 0
        for high in ends(length):
            gaps = text.split.gaps[plan.targets()] if text.split.gaps is not None else 0
            part = plan._replace(kept=plan.scored() & (gaps > low) & (gaps <= high))
            if part.scored().any():
                name = f"{low + 1}-{high}"
                facts = {"chance": text.split.chance, "ceiling": 1.0}
                facts["orderless"] = questions.orderless(text, part)
                found.append(Reading(text, part, text.token_hash(part), name, facts))
            low = high
        return found


def ends(longest: int) -> list[int]:
    """Where parts end: the same for runs of any L."""
    found = [longest]
    while found[0] % 2 == 0 and found[0] > NEAREST:
        found.insert(0, found[0] // 2)
    return found


protocol = Gap()
