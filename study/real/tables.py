"""Tables of the page on a real model."""

from collections.abc import Sequence
from functools import cache

import pandas as pd

from posenc_jax.display import Table
from posenc_jax.evaluation.protocols.copies import NEAR
from posenc_jax.report.frames import Estimate, selected
from study.cells import STUDY, of_documents, signed

L = 8_192
# Hashes of the last targets of windows of 65,536 tokens.
EIGHT_BOOKS, THREE_BOOKS = "026f96502d4fefb5", "1d5c9749721bf6ac"
BOOKS = 8
METHODS = "none streaming self_extend yarn:2 yarn:4 yarn:8 dynamic_yarn ntk:2 ntk:4 ntk:8"
LENGTHS = (4_096, 8_192, 12_288, 16_384, 32_768, 65_536)
# Rows and tokens back to copies; the nearest ones are in the rows alone.
ROW, BACK = 12_288, (2_048, 4_096, 6_144, 7_168, 9_216, 10_240, 12_160)
SHOWN = BACK[3:]  # the picture has all
FAR_ROW, FAR_BACK = 32_768, (9_216, 16_384, 24_576, 32_640)


@cache
def of_protocol(protocol: str, model: str = "smollm2") -> pd.DataFrame:
    """Sums of a protocol on a model, a row per cell and book."""
    rows = pd.read_csv(STUDY / "real" / "rows" / "documents.csv.xz")
    return rows[(rows.model == model) & (rows.protocol == protocol)]


@cache
def copies() -> pd.DataFrame:
    """Nats and targets of `copies` by method, length, distance, whether read, and book; those with
    near copies have other places and are on the page reach.md."""
    rows = of_protocol("copies")
    of_reach = rows.token_hash[rows.part.str.startswith(NEAR)]
    rows = rows[~rows.token_hash.isin(of_reach)]
    back = rows.part.str.extract(r"(\d+)$")[0].astype(int)
    return rows.assign(back=back, read=~rows.part.str.startswith("unread"))


@cache
def books() -> pd.DataFrame:
    """Rows of `same_token`, in which all rows of a book have the end of its window of 65,536
    tokens."""
    rows = of_protocol("same_token")
    return rows[rows.token_hash.isin([EIGHT_BOOKS, THREE_BOOKS])]


# Loss that a method adds on books to that of a plain row of L, and its own loss of passages without
# their copies less that with them.
LOST = {"protocol": "same_token", "less": {"method": "none", "length": L}}
SAVED = {"protocol": "copies", "read": False, "less": {"read": True}}


def of_books(one: Estimate) -> str:
    return signed(one) + "†" * (len(one.values) < BOOKS)


def of_methods() -> Table:
    """Nats per token that each method adds on books; a dagger marks three books."""
    columns = {f"{length:,}": LOST | {"length": length, "cell": of_books} for length in LENGTHS}
    return of_documents(books(), {one: {"method": one} for one in METHODS.split()}, columns)


def saved(length: int, distances: tuple[int, ...], more: Sequence[Sequence[str]] = ()) -> Table:
    """Nats per token that a copy saves a method in rows of a length, by the tokens back to it, and
    more lines."""
    lines = {method: {"method": method, "length": length} for method in sorted(METHODS.split())}
    made = of_documents(
        copies(), lines, {f"{back:,}": SAVED | {"back": back} for back in distances}
    )
    return Table("", made.head, [line for line in [*made.rows, *more] if any(line[1:])])


def crossing() -> Table:
    """What a copy saves Self-Extend less what it saves YaRN, over the same books."""
    rows = selected(copies(), {"length": ROW})
    rows = rows.assign(nats=rows.nats.where(~rows["read"], -rows.nats))
    keys = ["method", "back", "document"]
    # A book has as many targets with a copy as without, so these add up to what is saved of them.
    rows = rows.groupby(keys).agg(nats=("nats", "sum"), targets=("targets", "max")).reset_index()
    lines = {"self_extend less yarn:2": {"method": "self_extend", "less": {"method": "yarn:2"}}}
    return of_documents(rows, lines, {f"{back:,}": {"back": back} for back in SHOWN})


TABLES = {
    "real": of_methods,
    "real-copies": lambda: saved(ROW, SHOWN, crossing().rows),
    "real-far": lambda: saved(FAR_ROW, FAR_BACK),
}
