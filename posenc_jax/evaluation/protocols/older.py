"""Answers by the number of older settings, all in the window: parts `0`, `1`, `2`, ..."""

from posenc_jax.evaluation.protocols._questions import Questions
from posenc_jax.evaluation.protocols.answers import Answers, Parts


class Older(Answers):
    title = "answers by the number of older settings of the name, all in the window"
    order = 6
    by_part = True

    def parts(self, questions: Questions) -> Parts:
        settings = questions.settings
        if settings is None:
            return {}
        older, visible = settings.older, settings.visible.sum(axis=1)
        return {str(n): (older == n) & (visible == n + 1) for n in range(int(older.max()) + 1)}

    def facts(self, part: str) -> dict:
        return {"older": int(part)}


protocol = Older()
