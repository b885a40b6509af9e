"""Tables of the page on decoding."""

from functools import cache

import pandas as pd

from study.cells import STUDY, less, markdown, signed

SEMANTICS = ("window", "prefix", "stale")


@cache
def decoded() -> pd.DataFrame:
    """Nats and targets of every run, method, semantics, length and document."""
    files = sorted((STUDY / "decoding" / "rows").glob("*.csv.xz"))
    rows = pd.concat([pd.read_csv(file).assign(run=file.name.split(".")[0]) for file in files])
    lengths = rows[rows.semantics == "window"].length.unique()
    keys = ["method", "semantics", "length", "run", "document"]
    return rows[rows.length.isin(lengths)].set_index(keys).sort_index()


def documents_of(method: str, semantics: str, length: int) -> pd.DataFrame:
    """Sums over runs, by document."""
    return decoded().loc[method, semantics, length].groupby("document").sum()


def by_semantics() -> str:
    """Nats per token of the last targets at every length, and plain RoPE's."""
    lengths, body = decoded().index.unique("length"), []
    methods = [one for one in decoded().index.unique("method") if one != "none"]
    chosen = [("none", "none"), *((m, semantics) for m in methods for semantics in SEMANTICS)]
    for method, semantics in chosen:
        sums = [documents_of(method, semantics, length).sum() for length in lengths]
        name = "plain RoPE" if method == "none" else f"{method}, {semantics}"
        body.append([name, *(f"{one.nats / one.targets:.3f}" for one in sums)])
    return markdown(["", *(f"{length:,}" for length in lengths)], body)


def between_semantics() -> str:
    """Differences from `prefix` on the same targets, with 95% intervals over documents."""
    lengths, body = decoded().index.unique("length"), []
    for method in decoded().index.unique("method").drop("none"):
        for semantics in ("stale", "window"):
            cells = []
            for length in lengths[1:]:
                own, other = (documents_of(method, s, length) for s in (semantics, "prefix"))
                cells.append(signed(less(own, other)))
            body.append([f"{method}: {semantics} less prefix", *cells, by_seed(method, semantics)])
    head = ["", *(f"{length:,}" for length in lengths[1:])]
    return markdown([*head, f"{lengths[-1]:,}, by seed"], body)


def by_seed(method: str, semantics: str) -> str:
    """The difference from `prefix` at the longest length, of each run."""
    length = decoded().index.unique("length").max()
    sums = [decoded().loc[method, s, length].groupby("run").sum() for s in (semantics, "prefix")]
    values = (sums[0].nats - sums[1].nats) / sums[0].targets
    return ", ".join(f"{value:+.3f}" for value in values)


TABLES = {"semantics": by_semantics, "differences": between_semantics}
