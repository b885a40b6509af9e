"""The table of the page on decoding."""

from functools import cache

import pandas as pd

from posenc_jax.display import Table
from study.cells import STUDY, less, signed

NAMES = {"dynamic_yarn": "YaRN", "dynamic_pi": "interpolation", "dynamic_ntk": "NTK"}


@cache
def decoded() -> pd.DataFrame:
    """Nats and targets of every run, method, semantics, length and document."""
    files = sorted((STUDY / "decoding" / "rows").glob("*.csv.xz"))
    rows = pd.concat([pd.read_csv(file).assign(run=file.name.split(".")[0]) for file in files])
    keys = ["method", "semantics", "length", "run", "document"]
    return rows.set_index(keys).sort_index()


def documents_of(method: str, semantics: str, length: int) -> pd.DataFrame:
    """Sums over runs, by document."""
    return decoded().loc[method, semantics, length].groupby("document").sum()


def nats(method: str, semantics: str, length: int) -> str:
    sums = documents_of(method, semantics, length).sum()
    return f"{sums.nats / sums.targets:.3f}"


def added(method: str, semantics: str, length: int) -> str:
    """What semantics add to current keys, on the same targets."""
    own, current = (documents_of(method, one, length) for one in (semantics, "prefix"))
    return signed(less(own, current))


def costs() -> Table:
    """Nats per token at 8 L, and what stale keys and a window add."""
    far, body = 1024, []
    for method, name in NAMES.items():
        cells = [nats(method, semantics, far) for semantics in ("prefix", "stale")]
        cells += [added(method, "stale", length) for length in (256, 512, far)]
        body.append([f"dynamic {name}", *cells, added(method, "window", far)])
    body.append(["RoPE alone", nats("none", "none", far), *["-"] * 5])
    head = ["", "current keys, 8 L", "stale keys, 8 L"]
    head += [f"stale less current, {n} L" for n in (2, 4, 8)]
    return Table("", [*head, "one scale per window less current, 8 L"], body)


TABLES = {"costs": costs}
