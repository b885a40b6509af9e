"""Two documents cut into blocks and read alternately: what does it cost to follow both?

The targets are the last blocks of both. Each is also read with its own document alone, and for the
null with blocks of a third document in place of its own earlier ones. No training is needed.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from posenc_jax.display import Table, decimal
from posenc_jax.evaluation.cells import Cell, by_part, label
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.protocols.order import most_windows
from posenc_jax.evaluation.protocols.same_token import LAST, TARGETS
from posenc_jax.evaluation.windows import Reading, Text, gathered
from posenc_jax.runtime.errors import ConfigError

ALONE, RIFFLED, FOREIGN = "alone", "riffled", "foreign"
DIFFERENCES = {  # pandas reads "null" as a missing part
    "price": (RIFFLED, ALONE),
    "null-price": (FOREIGN, ALONE),
    "saved": (FOREIGN, RIFFLED),
}


class Riffle(Protocol):
    title = "the last blocks of two documents that are read alternately, against each alone"
    order = 9
    option = "last"  # tokens of a block
    columns = {"last": LAST}
    by_part = True

    def span(self, config: Any, trained: int, lengths: Sequence[int]) -> int:
        return config.last or max(1, trained // 4)

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        assert span is not None
        if max(lengths) // 2 <= span:
            raise ConfigError(
                f"{self.name} needs a length above {2 * span + 1}: each of two documents has more "
                f"than a block, last = {span} tokens; got {list(lengths)}"
            )

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Readings `alone`, `riffled` and, after blocks of a third document, `foreign`.

        Every window gives its last length / 2 tokens to two pairs, as the first of one and as the
        second of the other. Its first block is what whole blocks leave.
        """
        assert span is not None
        own, apart, windows = length // 2, most_windows(text.document), len(text.starts)
        if own <= span:
            return []
        if windows < 3 * apart:
            raise ConfigError(
                f"{self.name} needs three documents, none with more than a third of the windows; "
                f"{apart} of {windows} are of one: give more text, or windows = 1"
            )
        number = np.searchsorted(text.documents, text.document)
        documents = np.stack([number, np.roll(number, apart)], axis=1).ravel()  # of each pair

        def read(text: Text, part: str, starts: np.ndarray, length: int, *first: int) -> Reading:
            begin = np.tile(first, windows)  # of the targets in each row
            kept = np.arange(length) < begin[:, None] + span
            return Reading(text, length, starts, documents, begin, kept, part)

        a = (text.starts + text.longest + 1)[:, None] + np.arange(-own, 0)  # [W, own]
        b, third = np.roll(a, apart, axis=0), np.roll(a, 2 * apart, axis=0)
        starts, first = np.stack([a, b], axis=1)[..., 0].ravel(), own - span - 1
        alone = read(text, ALONE, starts, own - 1, first, first)
        readings = [alone]
        cut = np.arange(own) < own - span  # the earlier blocks
        without = [(np.where(cut, third, a), b), (a, np.where(cut, third, b))]
        for part, pairs in ((RIFFLED, [(a, b)] * 2), (FOREIGN, without)):
            rows = np.stack([_alternate(*pair, size=span) for pair in pairs], axis=1)
            inner = gathered(text, rows.reshape(-1, 2 * own), np.repeat(number, 2))
            last = 2 * own - span - 1
            whole = read(inner, part, inner.starts, 2 * own - 1, last - span, last)
            readings.append(replace(whole, unchanged=alone))
        return readings

    def derived(self, cells: Sequence[Cell]) -> list[Cell]:
        """Differences of losses, by document."""
        own = [cell for cell in cells if cell.facts["protocol"] == self.name]
        return [
            _less(name, parts[one], parts[other])
            for cell, parts in zip(own, by_part(own), strict=True)
            if cell.facts["part"] == ALONE
            for name, (one, other) in DIFFERENCES.items()
        ]

    def wanted(self, span: int | None) -> int:
        return -(-TARGETS // (span or 1))

    def table(self, rows: Sequence[dict]) -> Table:
        body = []
        for name in dict.fromkeys(map(label, rows)):
            own = {row["part"]: row for row in rows if label(row) == name}
            body.append([name, *(_mean(own.get(part)) for part in (ALONE, RIFFLED, *DIFFERENCES))])
        caption = (
            "nats per token; price: added by the other document; null-price: of a reader of the "
            "last block, whose earlier ones are a third document's; saved: by its own earlier "
            "blocks; 95% intervals over documents"
        )
        return Table(caption, ["", ALONE, RIFFLED, *DIFFERENCES], body)


def _alternate(a: np.ndarray, b: np.ndarray, size: int) -> np.ndarray:  # [W, T] twice -> [W, 2 T]
    """Alternate the blocks of both, counted from the end."""
    cuts = np.arange(a.shape[1] - size, 0, -size)[::-1]
    blocks = zip(np.split(a, cuts, axis=1), np.split(b, cuts, axis=1), strict=True)
    return np.concatenate(list(chain(*blocks)), axis=1)


def _less(part: str, one: Cell, other: Cell) -> Cell:
    """Differences of losses, which answer nothing."""
    nothing = dict.fromkeys(("answers", "right", "older_right"), np.zeros_like(one.nats))
    return one._replace(facts=one.facts | {"part": part}, nats=one.nats - other.nats, **nothing)


def _mean(row: dict | None) -> str:
    if row is None or row["part"] not in DIFFERENCES or row["nll_low"] is None:
        return decimal(None if row is None else row["nll"])
    return f"{row['nll']:+.3f} [{row['nll_low']:+.3f}, {row['nll_high']:+.3f}]"


protocol = Riffle()
