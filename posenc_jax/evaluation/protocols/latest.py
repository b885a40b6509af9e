"""Answers with one older setting, both in the window: a test of which of the two came last."""

from posenc_jax.evaluation import questions
from posenc_jax.evaluation.protocols import Reading
from posenc_jax.evaluation.protocols.answers import Answers, reading
from posenc_jax.evaluation.windows import Text

ALL = "all"


class Latest(Answers):
    title = "answers with one older setting in the window, by tokens between the two settings"
    order = 6
    by_part = True

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Readings of all such answers and by separation: `5-8` has those 5 to 8 tokens apart."""
        plan = self.plan(text, length, span)
        settings = questions.of(text, plan)
        if settings is None:
            return []
        both = (settings.older == 1) & (settings.visible.sum(axis=1) == 2)
        readings, low, high = [], 0, 1
        parts = {ALL: both}
        while low < length:
            name = f"{low + 1}-{high}" if low + 1 < high else str(high)
            parts[name] = both & (settings.separation > low) & (settings.separation <= high)
            low, high = high, 2 * high
        for name, chosen in parts.items():
            if chosen.any():
                part = questions.restricted(plan, chosen)
                separation = None if name == ALL else name
                readings.append(reading(text, part, name, older=1, separation=separation))
        return readings


protocol = Latest()
