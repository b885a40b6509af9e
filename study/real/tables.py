"""Tables of the page on a real model."""

from functools import cache, partial
from typing import Any

import pandas as pd

from study.cells import STUDY, less, markdown, signed

L = 8_192
# Hashes of the last targets of windows of 65,536 tokens.
EIGHT_BOOKS, THREE_BOOKS = "026f96502d4fefb5", "1d5c9749721bf6ac"
TO_TWICE_L = (
    "none streaming window:size=8192 self_extend yarn:2 dynamic_yarn ntk:2 dynamic_ntk "
    "ntk_by_parts:2 pi:2 rerope dca logn"
)
BEYOND = (
    "none streaming window:size=8192 self_extend yarn:4 yarn:8 dynamic_yarn ntk:4 ntk:8 "
    "dynamic_ntk rerope"
)
BELOW = "yarn:2 yarn:8 ntk:2 pi:2"
AGAINST_STREAMING = "self_extend yarn:2 dynamic_yarn ntk:2 ntk_by_parts:2"


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


def losses_of_copies(length: int) -> pd.Series:
    """Mean nats per token by method, whether read, and the tokens back, from 1,024 on."""
    sums = copies(length)[["nats", "targets"]].groupby(["method", "read", "back"]).sum()
    return (sums.nats / sums.targets).loc[:, :, 1_024:]


def of_copies(length: int) -> str:
    """Loss of a passage by the tokens back to its copy, and without one."""
    means = losses_of_copies(length)

    def cells(method: str, read: bool) -> list[str]:
        return [f"{nats:.2f}" for nats in means.loc[method, read]]

    body = [["streaming, no copy", *cells("streaming", False)]]
    body += [[method, *cells(method, True)] for method in means.index.unique("method")]
    return markdown(["", *(f"{back:,}" for back in means.index.unique("back"))], body)


def far_copies(length: int) -> str:
    """Gain of each method from a copy beyond L, against its own loss without one."""
    every = copies(length)
    backs = [back for back in every.index.unique("back") if back > L]

    def gain(method: str, back: int) -> str:
        return signed(less(every.loc[method, True, back], every.loc[method, False, back]))

    methods = every.index.unique("method")
    body = [[method, *(gain(method, back) for back in backs)] for method in methods]
    return markdown(["", *(f"{back:,}" for back in backs)], body)


def memory(method: str) -> tuple[Any, Any]:
    """Loss that a method adds on books in rows of 12,288 tokens, and its own loss of the passages
    without their copies beyond L less that with them."""
    passages = copies(12_288).reset_index("back")
    passages = passages[passages.back > L].groupby(["method", "read", "document"]).sum()
    saved = less(passages.loc[method, False], passages.loc[method, True])
    return lost(method, 12_288), saved


def of_memory() -> str:
    methods = "streaming self_extend ntk:2 yarn:2 none".split()
    body = [[method, *map(signed, memory(method))] for method in methods]
    return markdown(["", "loss added on books", "loss saved by copies beyond L"], body)


def lost(method: str, length: int, other: str = "none", than: int = L) -> Any:
    """Loss of a method, in nats per target, against another on the books that both read: by
    default a plain row of L."""
    rows = real()[["nats", "targets"]]
    own, baseline = rows.loc[method, length].align(rows.loc[other, than], join="inner", axis=0)
    return less(own, baseline)


def real_lengths(
    methods: str, lengths: tuple[int, ...], other: str = "none", than: int | None = L
) -> str:
    """Loss of each method at each length against another method at length `than` (None: at the
    same length), by default a plain row of L; a dagger marks what was measured on three books."""
    books = real().groupby(["method", "length"]).size()

    def cell(method: str, length: int) -> str:
        if (method, length) not in books:
            return ""
        found = signed(lost(method, length, other, than or length))
        return f"{found}†" if books[method, length] < books["none", L] else found

    body = [[method, *(cell(method, length) for length in lengths)] for method in methods.split()]
    return markdown(["", *(f"{length:,}" for length in lengths)], body)


def real_pairs() -> str:
    """Differences of two methods at one length."""
    pairs = (
        ("yarn:2", "self_extend", 12_288),
        ("yarn:2", "self_extend", 16_384),
        ("rerope", "yarn:2", 16_384),
        ("dca", "yarn:2", 16_384),
        ("logn", "none", 16_384),
        ("self_extend", "streaming", 24_576),
        ("self_extend", "yarn:4", 24_576),
        ("dynamic_yarn", "yarn:4", 24_576),
        ("self_extend", "streaming", 32_768),
        ("self_extend", "yarn:4", 32_768),
        ("rerope", "yarn:4", 32_768),
        ("yarn:8", "window:size=8192", 65_536),
    )
    body = [
        [f"{one} less {other}", f"{length:,}", signed(lost(one, length, other, length))]
        for one, other, length in pairs
    ]
    return markdown(["", "tokens", "difference"], body)


def real_devices() -> str:
    """Loss of the same targets on a CPU and on a GPU, and the largest difference of a book."""
    rows = of_smollm2("same_token")
    rows = rows.assign(on=rows.processor.str.startswith("NVIDIA").map({True: "gpu", False: "cpu"}))
    rows = rows.set_index(["method", "length", "token_hash", "document", "on"])
    both = rows[["nats", "targets"]].unstack("on").dropna()
    body = []
    for (method, length), own in both.groupby(["method", "length"]):
        targets = own.targets.cpu
        means = [own.nats[on].sum() / targets.sum() for on in ("cpu", "gpu")]
        largest = ((own.nats.gpu - own.nats.cpu) / targets).abs().max()
        body.append([method, f"{length:,}", *(f"{mean:.3f}" for mean in means), f"{largest:.3f}"])
    return markdown(["", "tokens", "CPU", "H200", "largest difference of a book"], body)


def order_of_planted() -> str:
    """Share of right answers and their loss, by older settings and the tokens between two."""
    sums = of_smollm2("planted").groupby(["method", "part"])[["nats", "targets", "right"]].sum()
    parts = sorted(sums.index.unique("part"), key=lambda part: [*map(int, part.split("-"))])
    older = [int(part.split("-")[0]) for part in parts]
    head = ["none older", *(part.replace("-", " older, ") for part in parts[1:])]
    body = []
    for method, own in sums.groupby("method"):
        own = own.droplevel("method").loc[parts]
        shares, nats = own.right / own.targets, own.nats / own.targets
        body.append([method, *(f"{s:.2f} ({n:.2f})" for s, n in zip(shares, nats, strict=True))])
    body.append(["a reader without order", *(f"{1 / (k + 1):.2f}" for k in older)])
    return markdown(["", *head], body)


def losses_of_planted() -> str:
    """Loss of a method against `none` on the right values, by the number of older settings."""
    rows = of_smollm2("planted")
    rows = rows.assign(older=rows.part.str.split("-").str[0])
    sums = rows.groupby(["method", "older", "document"])[["nats", "targets"]].sum()

    def cell(method: str, older: str) -> str:
        return signed(less(sums.loc[method, older], sums.loc["none", older]))

    olders, methods = sums.index.unique("older"), sums.index.unique("method").drop("none")
    body = [[f"{method} less none", *(cell(method, k) for k in olders)] for method in methods]
    return markdown(["", "none older", *(f"{k} older" for k in olders[1:])], body)


TABLES = {
    "real-memory": of_memory,
    "real-context": partial(real_lengths, "none streaming", (1_024, 2_048, 4_096, 9_216)),
    "real-lengths": partial(real_lengths, TO_TWICE_L, (8_192, 10_240, 12_288, 16_384)),
    "real-far": partial(real_lengths, BEYOND, (8_192, 24_576, 32_768, 65_536)),
    "real-below": partial(real_lengths, BELOW, (2_048, 4_096, 8_192), than=None),
    "real-streaming": partial(
        real_lengths, AGAINST_STREAMING, (10_240, 12_288, 16_384), "streaming", None
    ),
    "real-pairs": real_pairs,
    "real-devices": real_devices,
    "real-copies": partial(of_copies, 12_288),
    "real-far-copies": partial(far_copies, 12_288),
    "real-copies-32k": partial(of_copies, 32_768),
    "real-far-copies-32k": partial(far_copies, 32_768),
    "real-order": order_of_planted,
    "real-order-losses": losses_of_planted,
}
