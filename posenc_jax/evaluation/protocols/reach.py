"""Answers whose name was set once: who finds them, however far back, without any order."""

from posenc_jax.evaluation import questions
from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers, ceiling, gaps_of
from posenc_jax.evaluation.windows import Text


class Reach(Answers):
    title = "answers that have no older setting, each seen with as much context as fits"

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        plan = self.plan(text, length, span)
        asked = questions.of(text, plan)
        if asked is None or not (asked.older == 0).any():
            return []
        plan = questions.restricted(plan, asked.older == 0)
        facts = {
            "chance": text.split.chance,
            "ceiling": ceiling(text, *gaps_of(text, plan)),
            "orderless": questions.orderless(text, plan),
            "older": 0,
        }
        return [Reading(text, plan, text.token_hash(plan), facts=facts)]


protocol = Reach()
