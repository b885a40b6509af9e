"""Tables of the page on a real model."""

from functools import cache

import pandas as pd

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate
from study.cells import STUDY, of_documents, signed

L = 8_192
# Hashes of the last targets of windows of 65,536 tokens.
EIGHT_BOOKS, THREE_BOOKS = "026f96502d4fefb5", "1d5c9749721bf6ac"
BOOKS = 8
METHODS = (
    "none streaming window:size=8192 self_extend yarn:2 yarn:4 yarn:8 dynamic_yarn ntk:2 ntk:4 pi:2"
)
LENGTHS = (4_096, 8_192, 12_288, 16_384, 32_768, 65_536)
BACK = (9_216, 10_240, 12_160, 16_384, 24_576, 32_640)


@cache
def of_smollm2(protocol: str) -> pd.DataFrame:
    """Sums of a protocol on SmolLM2, a row per cell and book."""
    rows = pd.read_csv(STUDY / "real" / "rows" / "documents.csv.xz")
    return rows[rows.protocol == protocol]


@cache
def copies() -> pd.DataFrame:
    """Nats and targets of `copies` by method, length, distance, whether read, and book."""
    rows = of_smollm2("copies")
    back = rows.part.str.extract(r"(\d+)$")[0].astype(int)
    return rows.assign(back=back, read=~rows.part.str.startswith("unread"))


@cache
def memory() -> pd.DataFrame:
    """Rows of `same_token`, in which all rows of a book have the end of its window of 65,536
    tokens, and of copies beyond L in rows of 12,288 tokens, each distance alike."""
    books, passages = of_smollm2("same_token"), copies()
    books = books[books.token_hash.isin([EIGHT_BOOKS, THREE_BOOKS])]
    passages = passages[(passages.length == 12_288) & (passages.back > L)]
    alike = passages.assign(nats=passages.nats / passages.targets, targets=1)
    return pd.concat([books, alike])


# Loss that a method adds on books to that of a plain row of L, and its own loss of passages without
# their copies less that with them.
LOST = {"protocol": "same_token", "length": 12_288, "less": {"method": "none", "length": L}}
SAVED = {"protocol": "copies", "read": False, "less": {"read": True}}


def of_books(one: Estimate) -> str:
    return signed(one) + "†" * (len(one.values) < BOOKS)


def of_methods() -> Table:
    """Nats per token that each method adds on books, and those that copies beyond L save it; a
    dagger marks what was measured on three books."""
    columns = {f"{length:,}": LOST | {"length": length, "cell": of_books} for length in LENGTHS}
    columns["saved by copies beyond L"] = SAVED
    return of_documents(memory(), {one: {"method": one} for one in METHODS.split()}, columns)


def by_distance() -> Table:
    """Nats per token that a copy beyond L saves a method, by the tokens back to it."""
    lines = {
        f"{method}, rows of {length:,}": {"method": method, "length": length}
        for length in (12_288, 32_768)
        for method in sorted(METHODS.split())
    }
    made = of_documents(copies(), lines, {f"{back:,}": SAVED | {"back": back} for back in BACK})
    return Table("", made.head, [line for line in made.rows if any(line[1:])])


def of_order() -> Table:
    """Right answers of 16, by the number of older values and the tokens between two."""
    rows = of_smollm2("planted")
    sums = rows[rows.method == "none"].groupby("part")[["targets", "right"]].sum()
    parts = sorted(sums.index, key=lambda part: [*map(int, part.split("-"))])
    older = [int(part.split("-")[0]) for part in parts]
    head = ["right of 16", "none older", *(part.replace("-", " older, ") for part in parts[1:])]
    body = [
        ["SmolLM2", *(f"{sums.right[part]}" for part in parts)],
        ["a reader without order", *(f"{16 / (k + 1):g}" for k in older)],
    ]
    return Table("", head, body)


TABLES = {"real": of_methods, "real-copies": by_distance, "real-order": of_order}
