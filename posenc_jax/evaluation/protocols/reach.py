"""Answers whose name was set only once: retrieval at any distance, without order."""

from posenc_jax.evaluation import questions
from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers, ceiling, gaps_of, reading
from posenc_jax.evaluation.windows import Text


class Reach(Answers):
    title = "answers without an older setting, each seen with as much context as fits"

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        plan = self.plan(text, length, span)
        settings = questions.of(text, plan)
        if settings is None or not (settings.older == 0).any():
            return []
        plan = questions.restricted(plan, settings.older == 0)
        return [reading(text, plan, ceiling=ceiling(text, *gaps_of(text, plan)), older=0)]


protocol = Reach()
