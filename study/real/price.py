"""Tables of price.md, what static factors cost: python -m study.real.price RUN...

Gathers the losses of every evaluation of the runs by document in rows/price.csv.
"""

import sys
from pathlib import Path

import pandas as pd

from posenc_jax.display import Table
from study.cells import STUDY, less, signed
from study.publish import documents_of

ROWS = STUDY / "real/rows/price.csv"
KEYS = ["model", "evaluation", "method", "length"]


def main(runs: list[Path]) -> None:
    rows = pd.concat(documents_of(run).assign(model=run.name) for run in runs)
    rows = rows[[*KEYS, "document", "nats", "targets"]]
    rows = rows[rows.evaluation.isin(["price", "beyond"]) & (rows.method != "fresh")]
    rows.sort_values([*KEYS, "document"]).to_csv(ROWS, index=False)
    print(f"{ROWS}: {len(rows)} rows")


def losses(model: str, evaluation: str) -> pd.DataFrame:
    """Nats and targets of each book by method and length; all rows of a book in an evaluation end
    at the same token."""
    return pd.read_csv(ROWS).set_index(KEYS).sort_index().loc[model, evaluation]


def added(rows: pd.DataFrame, other: tuple[str, int | None]) -> Table:
    """Nats per token that each method adds to another one in rows of the same or a given length."""
    methods, lengths = (rows.index.unique(level) for level in ("method", "length"))
    body = [
        [method, *(_cell(rows, (method, n), (other[0], other[1] or n)) for n in lengths)]
        for method in methods
    ]
    return Table("", ["", *(f"{n:,}" for n in lengths)], [row for row in body if any(row[1:])])


def _cell(rows: pd.DataFrame, own: tuple[str, int], other: tuple[str, int]) -> str:
    if own == other or own not in rows.index:
        return ""
    return signed(less(rows.loc[own], rows.loc[other]))


TABLES = {
    "price": lambda: added(losses("smollm2", "price"), ("none", None)),
    "price-beyond": lambda: added(losses("smollm2", "beyond"), ("yarn:2", None)),
    "price-gemma": lambda: added(losses("gemma3", "price"), ("none", None)),
    "price-gemma-beyond": lambda: added(losses("gemma3", "beyond"), ("none", 32_768)),
}


if __name__ == "__main__":
    main([Path(run) for run in sys.argv[1:]])
