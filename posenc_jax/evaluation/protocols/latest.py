"""Answers with one older setting, both in the window: a test of which of the two came last."""

import numpy as np

from posenc_jax.evaluation.protocols._questions import Questions, doubling
from posenc_jax.evaluation.protocols.answers import Answers, Parts

ALL = "all"


class Latest(Answers):
    title = "answers with one older setting in the window, by tokens between the two settings"
    order = 6
    by_part = True

    def parts(self, questions: Questions) -> Parts:
        """All such answers and those by separation: `5-8` has those 5 to 8 tokens apart."""
        settings = questions.settings
        if settings is None:
            return {}
        both = (settings.older == 1) & (settings.visible.sum(axis=1) == 2)
        apart = np.where(both, settings.separation, 0)
        return {ALL: both} | doubling(apart, questions.plan.length)

    def facts(self, part: str) -> dict:
        return {"older": 1, "separation": None if part == ALL else part}


protocol = Latest()
