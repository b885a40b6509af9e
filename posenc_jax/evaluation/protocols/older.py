"""Answers by the number of older settings, all in the window: parts `0`, `1`, `2`, ..."""

from posenc_jax.evaluation import questions
from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers, reading
from posenc_jax.evaluation.windows import Text


class Older(Answers):
    title = "answers by the number of older settings of the name, all in the window"
    order = 6
    by_part = True

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        plan = self.plan(text, length, span)
        settings = questions.of(text, plan)
        if settings is None:
            return []
        readings = []
        for older in range(int(settings.older.max()) + 1):
            chosen = (settings.older == older) & (settings.visible.sum(axis=1) == older + 1)
            if chosen.any():
                part = questions.restricted(plan, chosen)
                readings.append(reading(text, part, str(older), older=older))
        return readings


protocol = Older()
