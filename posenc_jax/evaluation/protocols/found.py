"""Answers whose name was set once: does a model find a value, within L and beyond L?

`found` is the accuracy freed of guesses: 0 for a reader of the last L tokens beyond L, 1 for one
that finds every value, whatever it knows of order.
"""

from collections.abc import Mapping
from typing import Any

from posenc_jax.evaluation.cells import Sums
from posenc_jax.evaluation.protocols import Reading, _settled
from posenc_jax.evaluation.protocols._questions import Questions, doubling, restricted
from posenc_jax.evaluation.windows import Text


class Found(_settled.Settled):
    title = "answers whose name was set once, by tokens back to the setting"
    about, meaning = "found", "share found, freed of guesses"

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Parts `within` and `beyond` L, then ranges of tokens back: `65-128`."""
        plan = self.plan(text, length, span)
        settings = Questions(text, plan).settings
        assert settings is not None
        once = (settings.older == 0) & settings.visible[:, 0]
        back = settings.back[:, 0]
        parts = {"within": back <= trained, "beyond": back > trained}
        parts |= doubling(back, length)
        facts = {"chance": text.split.chance, "ceiling": 1.0, "orderless": 1.0, "older": 0}
        readings = []
        for part, chosen in parts.items():
            if (once & chosen).any():
                own = restricted(plan, once & chosen)
                readings.append(Reading(text, own, text.token_hash(own), part, facts))
        return readings

    def columns(self, facts: Mapping[str, Any], sums: Sums) -> dict[str, float | None]:
        answers = sums.answers.sum()
        return {"found": (sums.right.sum() / answers - facts["chance"]) / (1 - facts["chance"])}


protocol = Found()
