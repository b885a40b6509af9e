"""Answers whose name was set only once: retrieval at any distance, without order."""

from posenc_jax.evaluation.protocols import _questions
from posenc_jax.evaluation.protocols.answers import Answers, Parts
from posenc_jax.evaluation.windows import Plan, Text


class Reach(Answers):
    title = "answers without an older setting, each seen with as much context as fits"

    def parts(self, text: Text, plan: Plan) -> Parts:
        settings = _questions.questions_of(text, plan)
        return {} if settings is None else {"": settings.older == 0}

    def facts(self, part: str) -> dict:
        return {"older": 0}


protocol = Reach()
