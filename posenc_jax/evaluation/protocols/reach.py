"""Answers whose name was set only once: retrieval at any distance, without order."""

from posenc_jax.evaluation.protocols._questions import Questions
from posenc_jax.evaluation.protocols.answers import Answers, Parts


class Reach(Answers):
    title = "answers without an older setting, each seen with as much context as fits"

    def parts(self, questions: Questions) -> Parts:
        settings = questions.settings
        return {} if settings is None else {"": settings.older == 0}

    def facts(self, part: str) -> dict:
        return {"older": 0}


protocol = Reach()
