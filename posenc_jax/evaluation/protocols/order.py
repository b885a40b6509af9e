"""Ordinary text with its far context shuffled, reversed, dropped or taken from another document.

The added loss on the same last targets shows how far back a model uses order, or any context at all
(Khandelwal et al., 2018, arXiv:1805.04623). No training is needed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from posenc_jax.display import Line, Panels
from posenc_jax.evaluation.cells import Cell
from posenc_jax.evaluation.protocols.same_token import LastTargets
from posenc_jax.evaluation.statistics import paired
from posenc_jax.evaluation.windows import Reading, Text, changed, plan_of

# Far contexts [W, F] and the documents of their windows [W] -> the same [W, F]
Change = Callable[[np.ndarray, np.ndarray], np.ndarray]

CHANGES: dict[str, Change] = {
    "shuffled": lambda far, document: np.random.default_rng(0).permuted(far, axis=1),
    "reversed": lambda far, document: far[:, ::-1],
    "swapped": lambda far, document: np.roll(far, most_windows(document), axis=0),
}
NEAREST = 4
LOOKS = {
    "dropped": dict(color="#000000", marker="s"),
    "swapped": dict(color="#D55E00", marker="^"),
    "shuffled": dict(color="#0072B2", marker="o"),
    "reversed": dict(color="#009E73", marker="D"),
}
CHANGE_WORDS = {"swapped": "another document's"}


def most_windows(document: np.ndarray) -> int:
    """Most windows of any document: rolling by this many rows never pairs a document with itself,
    unless it has more than half of the windows."""
    return int(np.unique(document, return_counts=True)[1].max())


class Order(LastTargets):
    title = "the same targets with the context beyond some distance changed"
    order = 8
    by_part = True

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Readings at L and at the longest length: `shuffled-16` shuffles the text before the last
        16 tokens, `dropped-16` omits it."""
        assert span is not None
        if length not in (trained, text.longest):
            return []
        whole = replace(self.plan(text, length, span), part="whole")
        readings = [whole]
        near, changes = NEAREST, changes_of(text)
        # Of the length - span tokens before the first scored target, the last `near` are kept.
        while near < length - span:
            for name, change in changes.items():
                inner = changed(text, length, _beyond(span + near, change, text.document))
                inside = dict(text=inner, starts=inner.starts, unchanged=whole)
                readings.append(replace(whole, part=f"{name}-{near}", **inside))
            readings.append(_dropped(whole, near, span))
            near *= 2
        return readings

    def picture(self, cells: Sequence[Cell]) -> Panels | None:
        """Added loss on changed text, for one run without extension; one panel per length."""
        plain = (self.name, "none", None)
        chosen = [
            cell
            for cell in cells
            if tuple(cell.facts[name] for name in ("protocol", "extension", "window")) == plain
        ]
        lines = {}
        for length in sorted({cell.facts["length"] for cell in chosen}):
            parts = {c.facts["part"]: c for c in chosen if c.facts["length"] == length}
            if "whole" in parts:  # not of an interrupted evaluation
                lines[f"{length:,} tokens"] = _lines(parts)
        if not lines or len({cell.facts["run"] for cell in chosen}) > 1:
            return None
        return Panels(
            f"{self.name}: {self.title}",
            "unchanged context (tokens)",
            "added loss (nats per token)",
            lines,
        )


def _dropped(whole: Reading, near: int, span: int) -> Reading:
    """The same targets in windows that begin `near` tokens before the first of them."""
    text, length = whole.text, near + span - 1  # without the last target, which is not an input
    offsets = np.full((len(text.starts), 1), text.longest - length)
    reading = plan_of(text, length, offsets, near - 1)
    return replace(reading, part=f"dropped-{near}", unchanged=whole)


def _lines(parts: Mapping[str, Cell]) -> list[Line]:
    """Added loss of each change by unchanged context, with 95% intervals."""
    whole, lines = parts["whole"], []
    for change, look in LOOKS.items():
        near = sorted(int(p.partition("-")[2]) for p in parts if p.startswith(f"{change}-"))
        added = [paired(parts[f"{change}-{n}"].nats, whole.nats, whole.tokens) for n in near]
        if near:
            band = [loss.low for loss in added], [loss.high for loss in added]
            means = [loss.mean for loss in added]
            lines.append(Line(CHANGE_WORDS.get(change, change), near, means, look, band))
    return lines


def _beyond(near: int, change: Change, document: np.ndarray):
    """Change all but the last `near` tokens of rows."""

    def of_rows(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([change(rows[:, :-near], document), rows[:, -near:]], axis=1)

    return of_rows


def changes_of(text: Text) -> dict[str, Change]:
    """All changes, without `swapped` where one document has more than half of the windows."""
    majority = text.split.stretches or 2 * most_windows(text.document) > len(text.document)
    return {n: change for n, change in CHANGES.items() if not (majority and n == "swapped")}


protocol = Order()
