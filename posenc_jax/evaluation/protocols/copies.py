"""Ordinary text where passages occur a second time: their loss, by tokens back to the first time.

Each longest window holds the passages, most of them late. They are read with a copy of each some
distance before it, with a near copy, and without one. No training is needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

import numpy as np

from posenc_jax.display import NONE, Line, Panels, Table, decimal
from posenc_jax.evaluation.cells import Cell, by_part, label
from posenc_jax.evaluation.columns import Column
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.statistics import Difference, combined, paired
from posenc_jax.evaluation.windows import Reading, Text, changed, plan_of
from posenc_jax.runtime.errors import ConfigError

PASSAGE = 64  # tokens
CUE = 16  # first tokens of a passage, which are not scored
GAP = 64  # tokens of unchanged text around a passage and around a copy, at least
NEAREST = PASSAGE + GAP  # tokens back to a near copy; less would bring two passages too close
MULTIPLES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 5 / 8, 11 / 16, 3 / 4, 13 / 16)  # of L
MULTIPLES += (7 / 8, 15 / 16, 9 / 8, 5 / 4, 3 / 2, 2, 3, 4, 6, 8, 12, 16, 24, 32)
PER_ROW = 4  # passages of each distance, where there is room
PASSAGES = 8  # per distance, at least
NEAR, UNREAD = "near-", "unread-"
SHARE = {"share": "  share kept", "share_low": "    from", "share_high": "    to"}  # in tables
USABLE = 0.5  # share that a usable distance keeps


class Copies(Protocol):
    title = "passages of the text with a copy of each before them, by tokens back to the copy"
    columns = {
        "share": Column("saved by a copy over saved by one 128 tokens back (copies)"),
        "share_low": Column("95% interval of share over documents, lower end"),
        "share_high": Column("upper end"),
    }
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
        """Three readings per distance, of the same targets: `9216` has passages with a copy 9,216
        tokens back, `near-9216` with one 128 tokens back, `unread-9216` is the unchanged text."""
        begins = places(length, trained)
        pairs = [(begin, distance) for distance, found in begins.items() for begin in found]
        begin, back = np.array(pairs, int).reshape(-1, 2, 1).swapaxes(0, 1)
        passages = begin + np.arange(PASSAGE)

        def copied(rows: np.ndarray, back: np.ndarray | int) -> np.ndarray:
            rows[:, passages - back] = rows[:, passages]
            return rows

        far, near = (changed(text, length, partial(copied, back=d)) for d in (back, NEAREST))
        whole = plan_of(text, length, np.full((len(text.starts), 1), text.longest - length), 0)
        readings = []
        for distance, found in begins.items():
            kept = np.zeros((len(text.starts), length), bool)
            for begin in found:  # the target of place t is token t + 1 of the row
                kept[:, begin + CUE - 1 : begin + PASSAGE - 1] = True
            first = np.full_like(whole.first, min(found) + CUE - 1)
            unread = replace(whole, first=first, kept=kept, part=f"{UNREAD}{distance}")
            for prefix, inner in (("", far), (NEAR, near)):
                inside = dict(text=inner, starts=inner.starts, unchanged=unread)
                readings.append(replace(unread, part=f"{prefix}{distance}", **inside))
            readings.append(unread)
        return readings

    def beside(self, cell: Cell, parts: Mapping[str, Cell]) -> dict[str, float | None]:
        share = _share(cell.facts["part"], parts)
        ends = () if share is None else (share.mean, share.low, share.high)
        return dict(zip(SHARE, ends, strict=False))

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
        body, usable = [], []
        for name in dict.fromkeys(map(label, rows)):
            own = {row["part"]: row for row in rows if label(row) == name}
            for first, prefix in ((name, ""), ("  near", NEAR), ("  unread", UNREAD)):
                found = (own.get(f"{prefix}{distance}", {}) for distance in distances)
                body.append([first, *(decimal(row.get("nll")) for row in found)])
            for column, first in SHARE.items():
                found = (own.get(distance, {}) for distance in distances)
                body.append([first, *(decimal(row.get(column), 2) for row in found)])
            reach = usable_length(own.values())
            usable.append(f"{name} {f'{reach:,}' if reach else NONE}")
        caption = (
            f"nats per token; near: with a copy {NEAREST} tokens back; unread: without one; share "
            "kept: saved by the copy over saved by the near one, 95% intervals over documents\n"
            f"usable length, clearly above {USABLE} up to it: {', '.join(usable)} of "
            f"L = {rows[0]['train_length']:,}"
        )
        return Table(caption, ["", *distances], body)

    def picture(self, cells: Sequence[Cell]) -> Panels | None:
        """Share kept against distance in the longest windows of one run, a line per method."""
        cells = self.longest_of_one_run(cells)
        methods = {label(c.facts): own for c, own in zip(cells, by_part(cells), strict=True)}
        lines = [line for parts in methods.values() if (line := _line(parts)).x]
        if not lines:
            return None
        ends = [min(line.x[0] for line in lines), max(line.x[-1] for line in lines)]
        lines.append(Line("one half", ends, [USABLE] * 2, dict(color="0.2", marker="", ls=":")))
        return Panels(
            f"{self.name}: what a copy far back saves, as a share of a near one",
            "tokens back to the copy",
            "share kept",
            {f"{cells[0].facts['length']:,} tokens": lines},
            trained=[cells[0].facts["train_length"]],
        )


def share_kept(tokens, far, near, unread) -> Difference | None:  # [D], of the same targets; nats
    """Share of what a near copy saves that a far one does; None if the near one saves nothing."""
    # The interval covers the true share in 95 to 98% of simulations with 4 to 40 documents, which
    # were equal, of one or two windows or of lognormal lengths.
    clear = paired(unread, near, tokens).low > 0
    return combined([(1.0, unread - far, unread - near)]) if clear else None


def usable_length(rows: Iterable[Mapping]) -> int:
    """The farthest distance whose share has a lower 95% bound above one half, as have all nearer
    ones, in the rows of a method and length; 0 without one."""
    low = {int(row["part"]): row["share_low"] for row in rows if row["part"].isdigit()}
    return max(takewhile(lambda back: (low[back] or 0) > USABLE, sorted(low)), default=0)


def distances(length: int, trained: int) -> list[int]:
    """Tokens from copy to passage: multiples of L, and the farthest that fits."""
    farthest = length - GAP - PASSAGE
    grid = {round(multiple * trained) for multiple in MULTIPLES} | {farthest}
    return sorted(distance for distance in grid if NEAREST <= distance <= farthest)


def places(length: int, trained: int) -> dict[int, list[int]]:
    """First tokens of the passages of each distance in a row of `length` + 1 tokens.

    Each takes the last place where in the text with far copies and in that with near ones it and
    its copy are `GAP` tokens apart from all others. The farthest choose first, so that near copies
    are asked for late in the row too. A distance without such a place is left out.
    """
    far, near = np.ones((2, length + 1), bool)  # where a passage or a copy may begin
    begins: dict[int, list[int]] = {}
    for distance in distances(length, trained)[::-1] * PER_ROW:
        at = np.arange(distance + GAP, length + 2 - PASSAGE)
        fits = far[at] & far[at - distance] & near[at] & near[at - NEAREST]
        if fits.any():
            begin = int(at[fits][-1])
            begins.setdefault(distance, []).append(begin)
            for free, back in ((far, distance), (near, NEAREST)):
                for own in (begin, begin - back):
                    free[max(0, own - NEAREST + 1) : own + NEAREST] = False
    return dict(sorted(begins.items()))


def _share(part: str, parts: Mapping[str, Cell]) -> Difference | None:
    """Share kept at a distance; None for other parts, and where one of its three is missing."""
    found = [parts[name] for prefix in ("", NEAR, UNREAD) if (name := f"{prefix}{part}") in parts]
    return share_kept(found[0].tokens, *(c.nats for c in found)) if len(found) == 3 else None


def _line(parts: Mapping[str, Cell]) -> Line:
    """Share kept of a method by distance, with 95% intervals over documents."""
    shares = {int(part): share for part in parts if (share := _share(part, parts))}
    band = [share.low for share in shares.values()], [share.high for share in shares.values()]
    means, facts = [share.mean for share in shares.values()], next(iter(parts.values())).facts
    return Line(label(facts), [*shares], means, {}, band, method=facts)


protocol = Copies()
