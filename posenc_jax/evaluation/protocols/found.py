"""Answers whose name was set once: does a model find a value, within L and beyond L?

`found` is the accuracy freed of guesses: 0 for a reader of the last L tokens beyond L, 1 for one
that finds every value, whatever it knows of order.
"""

from posenc_jax.evaluation.cells import Cell
from posenc_jax.evaluation.columns import Column
from posenc_jax.evaluation.protocols import _settled
from posenc_jax.evaluation.protocols._questions import (
    OF_SETTINGS,
    Questions,
    doubling,
    restricted,
)
from posenc_jax.evaluation.windows import Reading, Text


class Found(_settled.Settled):
    title = "answers whose name was set once, by tokens back to the setting"
    columns = OF_SETTINGS | {"found": Column("share found beyond chance (found)")}
    about, meaning = "found", "share found, freed of guesses"

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Parts `within` and `beyond` L, then ranges of tokens back: `65-128`."""
        reading = self.plan(text, length, span)
        settings = Questions(reading).settings
        assert settings is not None
        once = (settings.older == 0) & settings.visible[:, 0]
        back = settings.back[:, 0]
        parts = {"within": back <= trained, "beyond": back > trained}
        parts |= doubling(back, length)
        facts = {"chance": text.split.chance, "ceiling": 1.0, "orderless": 1.0, "older": 0}
        return [
            restricted(reading, once & chosen, part=part, facts=facts)
            for part, chosen in parts.items()
            if (once & chosen).any()
        ]

    def values(self, cell: Cell) -> dict[str, float | None]:
        right, chance = cell.right.sum() / cell.answers.sum(), cell.facts["chance"]
        return {"found": (right - chance) / (1 - chance)}


protocol = Found()
