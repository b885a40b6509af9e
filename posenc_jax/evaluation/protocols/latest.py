"""Answers with one older setting, both within the window: who tells which of the two came last."""

from posenc_jax.evaluation import questions
from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers
from posenc_jax.evaluation.windows import Text

ALL = "all"


class Latest(Answers):
    title = "answers with one older setting in the window, by tokens between the two settings"
    order = 6
    by_part = True

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """At every length all of them, and by separation: `5-8` is all from 5 to 8 tokens."""
        plan = self.plan(text, length, span)
        asked = questions.of(text, plan)
        if asked is None:
            return []
        both = (asked.older == 1) & (asked.visible.sum(axis=1) == 2)
        found, low, high = [], 0, 1
        parts = {ALL: both}
        while low < length:
            name = f"{low + 1}-{high}" if low + 1 < high else str(high)
            parts[name] = both & (asked.separation > low) & (asked.separation <= high)
            low, high = high, 2 * high
        for name, chosen in parts.items():
            if chosen.any():
                part = questions.restricted(plan, chosen)
                facts = {
                    "chance": text.split.chance,
                    "ceiling": 1.0,
                    "orderless": questions.orderless(text, part),
                    "older": 1,
                    "separation": None if name == ALL else name,
                }
                found.append(Reading(text, part, text.token_hash(part), name, facts))
        return found


protocol = Latest()
