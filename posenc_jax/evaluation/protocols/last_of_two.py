"""Answers whose name was set twice, to two values: does a model answer with the last?

Beyond L a pair counts if it is *held*: the model answers with each of the two values when the other
setting is replaced by filler. So the share of held pairs that are answered with the last value,
`order`, is that of order alone; a reader without order has 0.5.
"""

from dataclasses import replace

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.evaluation.cells import Cell
from posenc_jax.evaluation.columns import Column
from posenc_jax.evaluation.protocols import _settled
from posenc_jax.evaluation.protocols._questions import (
    OF_SETTINGS,
    SEPARATION,
    Questions,
    Settings,
    doubling,
    restricted,
)
from posenc_jax.evaluation.windows import Reading, Text, gathered

HELD, PAIRS = 0.2, 40  # no order where a smaller share of pairs is held, or fewer
ONE_PASS = "one-pass"
# The hard cell within L: tokens back to the last setting, and between the two.
HARD_BACK, HARD_APART = (17, 64), (1, 8)


class LastOfTwo(_settled.Settled):
    title = "answers whose name was set twice, by tokens between the settings and back to the last"
    columns = OF_SETTINGS | {
        "separation": SEPARATION,
        "older_right": Column("share answered with the older value (last_of_two)"),
        "other": Column("share answered with another value (last_of_two)"),
        "found": Column("share found beyond chance (found)"),
        "held": Column("share of pairs whose values are both found alone (last_of_two)"),
        "order": Column("share of held pairs answered with the last value (last_of_two)"),
    }
    about, meaning = "order", "share answered with the last value, of the pairs held"

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Within L: `within`, its hard cell `hard`, and separations: `apart-3-4`. Beyond L:
        `beyond`, the same from a single reading, `one-pass`, separations and distances:
        `back-65-128`."""
        reading = self.plan(text, length, span)
        settings = Questions(reading).settings
        assert settings is not None
        back, apart = settings.back[:, 0], settings.separation
        asked = pairs(settings, length, trained)
        parts = _within(back, apart) if length <= trained else _beyond(back, length)
        by_apart = doubling(np.where(asked, apart, 0), length)
        parts |= {f"apart-{name}": chosen for name, chosen in by_apart.items()}
        parts = {part: chosen & asked for part, chosen in parts.items() if (chosen & asked).any()}
        single = {part: _part(reading, settings, own, part) for part, own in parts.items()}
        if length <= trained or not single:
            return list(single.values())
        inner = _three_times(reading, settings, asked)
        return [_paired(one, inner, held=part != ONE_PASS) for part, one in single.items()]

    def values(self, cell: Cell) -> dict[str, float | None]:
        facts, older = cell.facts, cell.older_right.sum()
        pairs, answers, right = cell.tokens.sum(), cell.answers.sum(), cell.right.sum()
        shares = {"older_right": older, "other": answers - right - older}
        columns: dict[str, float | None] = {}
        if answers:
            columns |= {name: float(count / answers) for name, count in shares.items()}
        if facts["length"] <= facts["train_length"]:
            return columns
        if facts["part"] != ONE_PASS:
            held = answers / pairs
            enough = held >= HELD and answers >= PAIRS
            return columns | {"held": held, "order": right / answers if enough else None}
        found, order = estimates(answers, right, older, facts["chance"])
        return columns | {"found": found, "order": order}


def estimates(
    answers: float, last: float, older: float, chance: float
) -> tuple[float, float | None]:
    """The shares found, and answered with the last value among them, from a single reading.

    Of the 1 / chance values two belong to settings, and all others are guesses.
    """
    values = 1 / chance
    guesses = (answers - last - older) * values / (values - 2)
    found = float(1 - guesses / answers)
    if found < HELD or answers < PAIRS:
        return found, None
    return found, float(0.5 + (last - older) / (2 * (answers - guesses)))


def pairs(settings: Settings, length: int, trained: int) -> np.ndarray:  # [N], bool
    """The questions whose name was set twice, both in the window; beyond L the last before L."""
    both = (settings.older == 1) & settings.visible[:, :2].all(axis=1)
    return both if length <= trained else both & (settings.back[:, 0] > trained)


def _within(back: np.ndarray, apart: np.ndarray) -> dict[str, np.ndarray]:
    hard = _between(back, *HARD_BACK) & _between(apart, *HARD_APART)
    return {"within": np.ones_like(hard), "hard": hard}


def _beyond(back: np.ndarray, length: int) -> dict[str, np.ndarray]:
    every = np.ones(len(back), bool)
    by_back = doubling(back, length)
    return {"beyond": every, ONE_PASS: every} | {f"back-{n}": own for n, own in by_back.items()}


def _between(values: np.ndarray, low: int, high: int) -> np.ndarray:
    return (low <= values) & (values <= high)


def _part(reading: Reading, settings: Settings, chosen: np.ndarray, part: str) -> Reading:
    facts = {"chance": reading.text.split.chance, "ceiling": 1.0, "orderless": 0.5, "older": 1}
    if part.startswith("apart-"):
        facts["separation"] = part.removeprefix("apart-")
    older = settings.answer[chosen, 1:2]
    return restricted(reading, chosen, part=part, facts=facts, older=older)


def _three_times(reading: Reading, settings: Settings, pairs: np.ndarray) -> Text:
    """A text of the windows of a reading, each three times: as it is, then with filler in place of
    the last setting of every pair, then of the older one."""
    row, place = (index[pairs] for index in np.nonzero(reading.scored()))
    back = settings.back[pairs]
    filler = np.random.default_rng(0).choice(tasks.FILLERS, len(row))
    places = np.repeat(reading.starts[:, None] + np.arange(reading.length + 1), 3, axis=0)
    inner = gathered(reading.text, places, np.repeat(reading.document, 3))
    tokens = inner.split.tokens.reshape(places.shape)
    for version, setting in ((1, 0), (2, 1)):
        tokens[3 * row + version, place - back[:, setting]] = filler
    return inner


def _paired(one: Reading, inner: Text, *, held: bool) -> Reading:
    """A reading of the text that has every window three times, scored where it is unchanged."""
    kept = np.zeros((3 * len(one.starts), one.length), bool)
    kept[0::3] = one.scored()
    right = one.text.split.tokens[one.targets()[one.scored()]]

    def counts(chosen: np.ndarray) -> np.ndarray:  # [3N, last] -> bool
        asked = kept[0::3, one.length - chosen.shape[1] :]
        without_last, without_older = chosen[1::3][asked], chosen[2::3][asked]
        assert one.older is not None
        found = np.zeros(chosen.shape, bool)
        found[0::3][asked] = (without_last == one.older[:, 0]) & (without_older == right)
        return found

    return replace(
        one,
        text=inner,
        starts=inner.starts,
        document=np.repeat(one.document, 3),
        first=np.repeat(one.first, 3),
        kept=kept,
        counts=counts if held else None,
        unchanged=one,
    )


protocol = LastOfTwo()
