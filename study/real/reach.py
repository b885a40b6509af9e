"""Tables of reach.md, how far a model reads.

Every number is over books: the share that a copy keeps, the farthest usable distance, the distance
at which half is left, and what unchanged text costs.
"""

from functools import cache

import numpy as np
import pandas as pd

from posenc_jax.display import Table
from posenc_jax.evaluation.protocols.copies import NEAR, UNREAD, USABLE, share_kept, usable_length
from posenc_jax.evaluation.statistics import Difference, paired
from study.real.tables import ROW, L, of_protocol

DRAWS = 4_000  # of the books, with replacement
METHODS = (
    "none",
    *("yarn:1.1", "yarn:1.25", "yarn:1.5", "yarn:2"),
    *("yarn:1.5:attention_factor=1", "ntk:1.5"),
)
SHOWN = [5 * L // 8, 3 * L // 4, 7 * L // 8, 8_064]
BEYOND = [5 * L // 8, 3 * L // 4, 9_216, 10_240, 12_160]
GEMMA = "gemma3"
GEMMA_L = 32_768
GEMMA_SHOWN = [8_192, 24_576, 28_672, 30_720, 32_640]


class Row:
    """What a method saves in rows of a length: arrays over books by distance."""

    def __init__(self, rows: pd.DataFrame):
        sums = {part: own.set_index("document") for part, own in rows.groupby("part")}
        self.distances = sorted(int(part) for part in sums if part.isdigit())
        self.books = sums[str(self.distances[0])].index
        whole = {part: own.loc[self.books] for part, own in sums.items()}
        nats = {part: own.nats.to_numpy() for part, own in whole.items()}
        self.targets = {back: whole[str(back)].targets.to_numpy() for back in self.distances}
        self.unread = {back: nats[f"{UNREAD}{back}"] for back in self.distances}
        self.far = {back: self.unread[back] - nats[str(back)] for back in self.distances}
        self.near = {back: self.unread[back] - nats[f"{NEAR}{back}"] for back in self.distances}

    def share(self, back: int) -> Difference:
        zero = np.zeros_like(self.far[back])
        found = share_kept(self.targets[back], -self.far[back], -self.near[back], zero)
        assert found is not None
        return found

    @property
    def usable(self) -> int:
        found = ((back, self.share(back)) for back in self.distances)
        return usable_length({"part": str(back), "share_low": one.low} for back, one in found)

    def half(self, books=slice(None)) -> float:
        """The distance at which the share crosses one half, on the line between two of the grid;
        nan: it does not."""
        shares = [self.far[b][books].sum() / self.near[b][books].sum() for b in self.distances]
        pairs = zip(self.distances, self.distances[1:], shares, shares[1:], strict=False)
        for left, right, before, after in pairs:
            if before >= USABLE > after:
                return left + (right - left) * (before - USABLE) / (before - after)
        return np.nan


@cache
def measured(model: str = "smollm2") -> dict[tuple[str, int], Row]:
    """Rows with near copies of the same targets, by method and length."""
    rows = of_protocol("copies", model)
    kept = rows[rows.part.str.startswith(NEAR)][["method", "length", "token_hash"]]
    rows = rows.merge(kept.drop_duplicates(), on=["method", "length", "token_hash"])
    return {key: Row(own) for key, own in rows.groupby(["method", "length"])}


def shares(length: int, distances: list[int], model: str = "smollm2") -> Table:
    """Share kept by the tokens back to the copy in rows of a length, the usable length, and the
    nats that a method adds to the unchanged targets of the whole grid."""
    found = {method: measured(model).get((method, length)) for method in METHODS}
    plain = found["none"]
    body = [
        [method, *(_share(row.share(back)) for back in distances), f"{row.usable:,}"]
        + ([] if plain is None else ["" if row is plain else _price(row, plain)])
        for method, row in found.items()
        if row
    ]
    head = ["", *(f"{back:,}" for back in distances), "usable"]
    return Table("", head + ["nats on text"] * (plain is not None), body)


def _share(one: Difference) -> str:
    return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]"


def of_gemma() -> Table:
    """The shares of Gemma in rows of its L, and the nats that a copy saves more with YaRN."""
    made = shares(GEMMA_L, GEMMA_SHOWN, GEMMA)
    plain, row = (measured(GEMMA)[method, GEMMA_L] for method in ("none", "yarn:1.5"))
    more = [paired(row.far[b], plain.far[b], row.targets[b]) for b in GEMMA_SHOWN]
    line = ["yarn:1.5, nats more", *(_signed(one, 2) for one in more), "", ""]
    return Table("", made.head, [*made.rows, line])


def _signed(one: Difference, digits: int) -> str:
    return f"{one.mean:+.{digits}f} [{one.low:.{digits}f}, {one.high:.{digits}f}]"


def _price(row: Row, plain: Row) -> str:
    own, other, targets = (sum(side.values()) for side in (row.unread, plain.unread, row.targets))
    return _signed(paired(own, other, targets), 3)


def halves() -> Table:
    """Half-reach of YaRN in every row that has one, and what the factor times half of that of
    YaRN by 2 predicts; 95% intervals of the percentile bootstrap over books."""
    rng = np.random.default_rng(0)
    plain, fitted = measured()["none", L], measured()["yarn:2", ROW].half() / 2
    draws = rng.integers(0, len(plain.books), (DRAWS, len(plain.books)))
    body = []
    for (method, length), row in sorted(measured().items(), key=lambda one: (one[0][1], one[0][0])):
        if np.isnan(half := row.half()) or method.startswith("ntk"):  # the law is YaRN's
            continue
        drawn = np.array([row.half(books) for books in draws])
        drawn = np.where(np.isnan(drawn), np.inf, drawn)
        low, high = np.quantile(drawn, (0.025, 0.975), method="nearest")
        predicted = fitted * (1.0 if method == "none" else float(method.split(":")[1]))
        words = f"{predicted:,.0f} ({predicted / half - 1:+.1%})"
        body.append([method, f"{length:,}", f"{half:,.0f} [{low:,.0f}, {high:,.0f}]", words])
    return Table("", ["", "rows of", "half-reach", "predicted"], body)


TABLES = {
    "reach-shares": lambda: shares(L, SHOWN),
    "reach-beyond": lambda: shares(ROW, BEYOND),
    "reach-halves": halves,
    "reach-gemma": of_gemma,
}
