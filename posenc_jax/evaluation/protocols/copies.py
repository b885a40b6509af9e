"""Ordinary text where passages occur a second time: their loss, by tokens back to the first time.

Each longest window holds the passages, most of them late; a copy of each replaces text some
distance before it. The same targets in the unchanged text are the baseline. No training is needed.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from posenc_jax.display import Line, Panels, Table, decimal
from posenc_jax.evaluation.cells import Cell, label
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.statistics import combined
from posenc_jax.evaluation.windows import Reading, Text, changed, plan_of
from posenc_jax.runtime.errors import ConfigError

PASSAGE = 64  # tokens
CUE = 16  # first tokens of a passage, which are not scored
GAP = 64  # tokens of unchanged text around a passage and around a copy, at least
NEAREST = PASSAGE + GAP
MULTIPLES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)  # of L
MULTIPLES += (9 / 8, 5 / 4, 3 / 2, 2, 3, 4, 6, 8, 12, 16, 24, 32)
PER_ROW = 4  # passages of each distance, where there is room
PASSAGES = 8  # per distance, at least
UNREAD = "unread-"
PALE = dict(marker="", linestyle=":", linewidth=1, alpha=0.5)


class Copies(Protocol):
    title = "passages of the text with a copy of each before them, by tokens back to the copy"
    order = 8
    by_part = True

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        if max(lengths) < NEAREST + GAP + PASSAGE:
            raise ConfigError(
                f"{self.name} needs a length of {NEAREST + GAP + PASSAGE} tokens or more: its "
                f"copies have {PASSAGE} and lie {NEAREST} or more before their passages; got "
                f"{list(lengths)}"
            )

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Two readings per distance: `9216` has passages with a copy 9,216 tokens back,
        `unread-9216` the same targets in the unchanged text."""
        begins = places(length, trained)

        def with_copies(rows: np.ndarray) -> np.ndarray:
            for distance, found in begins.items():
                for begin in found:
                    rows[:, begin - distance :][:, :PASSAGE] = rows[:, begin:][:, :PASSAGE]
            return rows

        inner = changed(text, length, with_copies)
        whole = plan_of(text, length, np.full((len(text.starts), 1), text.longest - length), 0)
        readings = []
        for distance, found in begins.items():
            kept = np.zeros((len(text.starts), length), bool)
            for begin in found:  # the target of place t is token t + 1 of the row
                kept[:, begin + CUE - 1 : begin + PASSAGE - 1] = True
            first = np.full_like(whole.first, min(found) + CUE - 1)
            unread = replace(whole, first=first, kept=kept, part=f"{UNREAD}{distance}")
            inside = dict(text=inner, starts=inner.starts, unchanged=unread)
            readings += [replace(unread, part=str(distance), **inside), unread]
        return readings

    def wanted(self, span: int | None) -> int:
        return PASSAGES

    def warning(self, windows: int, span: int | None) -> str | None:
        if windows >= PASSAGES:
            return None
        return (
            f"{self.name} scores {windows} passages at the farthest distance, too few for a curve "
            f"below {PASSAGES}: raise windows or documents, or give more text"
        )

    def table(self, rows: Sequence[dict]) -> Table:
        distances = [part for part in dict.fromkeys(row["part"] for row in rows) if part.isdigit()]
        body = []
        for name in dict.fromkeys(map(label, rows)):
            nats = {row["part"]: row["nll"] for row in rows if label(row) == name}
            for first, prefix in ((name, ""), ("  unread", UNREAD)):
                values = (nats.get(f"{prefix}{distance}") for distance in distances)
                body.append([first, *map(decimal, values)])
        caption = "nats per token; unread: the same targets without a copy"
        return Table(caption, ["", *distances], body)

    def picture(self, cells: Sequence[Cell]) -> Panels | None:
        """Loss against distance in the longest windows of one run, a line per method and a pale one
        of the same targets without a copy."""
        cells = self.longest_of_one_run(cells)
        if not cells:
            return None
        lines = []
        for name in dict.fromkeys(label(cell.facts) for cell in cells):
            own = {cell.facts["part"]: cell for cell in cells if label(cell.facts) == name}
            unread = _line(name, own, UNREAD)._replace(look=PALE, band=None, listed=False)
            lines += [line for line in (_line(name, own), unread) if line.x]
        entry = PALE | {"color": "black"}
        lines.append(Line("unread: without a copy", [], [], entry))
        return Panels(
            f"{self.name}: loss of a passage with a copy before it",
            "tokens back to the copy",
            "loss of the passage (nats per token)",
            {f"{cells[0].facts['length']:,} tokens": lines},
            trained=[cells[0].facts["train_length"]],
        )


def distances(length: int, trained: int) -> list[int]:
    """Tokens from copy to passage: multiples of L, and the farthest that fits."""
    farthest = length - GAP - PASSAGE
    grid = {round(multiple * trained) for multiple in MULTIPLES} | {farthest}
    return sorted(distance for distance in grid if NEAREST <= distance <= farthest)


def places(length: int, trained: int) -> dict[int, list[int]]:
    """First tokens of the passages of each distance in a row of `length` + 1 tokens.

    Each takes the last place where both it and its copy are `GAP` tokens apart from all others. One
    of every distance comes first, the farthest before others, so that near copies are asked for
    late in the row too. A distance without such a place is left out.
    """
    free = np.ones(length + 1, bool)
    begins: dict[int, list[int]] = {}
    once = distances(length, trained)[::-1]
    for distance in once + [more for more in once for _ in range(PER_ROW - 1)]:
        for begin in range(length + 1 - PASSAGE, distance + GAP - 1, -1):
            both = (begin, begin - distance)
            if all(free[at - GAP : at + PASSAGE + GAP].all() for at in both):
                begins.setdefault(distance, []).append(begin)
                for at in both:
                    free[at : at + PASSAGE] = False
                break
    return dict(sorted(begins.items()))


def _line(name: str, own: dict[str, Cell], prefix: str = "") -> Line:
    """Mean loss of a method by distance, with 95% intervals over documents; an interrupted
    evaluation lacks some."""
    every = {int(part.removeprefix(UNREAD)) for part in own}
    at = sorted(distance for distance in every if f"{prefix}{distance}" in own)
    cells = [own[f"{prefix}{distance}"] for distance in at]
    losses = [combined([(1.0, cell.nats, cell.tokens)]) for cell in cells]
    band = [loss.low for loss in losses], [loss.high for loss in losses]
    means = [loss.mean for loss in losses]
    return Line(name, at, means, {}, band, method=next(iter(own.values())).facts)


protocol = Copies()
