"""Tables of the page on a real model."""

from functools import cache
from typing import Any

import pandas as pd

from posenc_jax.display import Table
from study.cells import STUDY, less, signed

L = 8_192
# Hashes of the last targets of windows of 65,536 tokens.
EIGHT_BOOKS, THREE_BOOKS = "026f96502d4fefb5", "1d5c9749721bf6ac"
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
def real() -> pd.DataFrame:
    """Nats and targets of `same_token` on SmolLM2, by method, length and book; all rows of a book
    have the end of its window of 65,536 tokens."""
    rows = of_smollm2("same_token")
    rows = rows[rows.token_hash.isin([EIGHT_BOOKS, THREE_BOOKS])]
    return rows.set_index(["method", "length", "document"]).sort_index()


@cache
def copies(length: int) -> pd.DataFrame:
    """Nats and targets of `copies` in rows of this length, by method, distance, whether read, and
    book."""
    rows = of_smollm2("copies")
    rows = rows[rows.length == length]
    back = rows.part.str.extract(r"(\d+)$")[0].astype(int)
    rows = rows.assign(back=back, read=~rows.part.str.startswith("unread"))
    return rows.set_index(["method", "read", "back", "document"]).sort_index()


def lost(method: str, length: int) -> Any:
    """Nats per token that a method adds to a plain row of L, on the books that both read."""
    rows = real()[["nats", "targets"]]
    own, plain = rows.loc[method, length].align(rows.loc["none", L], join="inner", axis=0)
    return less(own, plain)


def memory(method: str) -> tuple[Any, Any]:
    """Loss that a method adds on books in rows of 12,288 tokens, and its own loss of the passages
    without their copies beyond L less that with them, each distance alike."""
    passages = copies(12_288).reset_index("back")
    passages = passages[passages.back > L]
    passages = passages.assign(nats=passages.nats / passages.targets, targets=1)
    passages = passages.groupby(["method", "read", "document"])[["nats", "targets"]].sum()
    saved = less(passages.loc[method, False], passages.loc[method, True])
    return lost(method, 12_288), saved


def of_methods() -> Table:
    """Nats per token that each method adds on books, and those that copies beyond L save it; a
    dagger marks what was measured on three books."""
    books = real().groupby(["method", "length"]).size()
    copied = copies(12_288).index.unique("method")

    def added(method: str, length: int) -> str:
        if (method, length) not in books:
            return ""
        found = signed(lost(method, length))
        return f"{found}†" if books[method, length] < books["none", L] else found

    body = [
        [
            method,
            *(added(method, length) for length in LENGTHS),
            signed(memory(method)[1]) if method in copied else "",
        ]
        for method in METHODS.split()
    ]
    return Table("", ["", *(f"{n:,}" for n in LENGTHS), "saved by copies beyond L"], body)


def by_distance() -> Table:
    """Nats per token that a copy beyond L saves a method, by the tokens back to it."""
    body = []
    for length in (12_288, 32_768):
        every = copies(length)
        measured = every.index.unique("back")
        for method in every.index.unique("method").intersection(METHODS.split()):
            cells = [
                signed(less(every.loc[method, False, back], every.loc[method, True, back]))
                if back in measured
                else ""
                for back in BACK
            ]
            body.append([f"{method}, rows of {length:,}", *cells])
    return Table("", ["", *(f"{back:,}" for back in BACK)], body)


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
