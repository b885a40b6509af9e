"""Tables of price.md, what static factors cost: python -m study.real.price RUN...

Gathers the losses of every evaluation of the runs by document in rows/price.csv.
"""

import sys
from pathlib import Path

import pandas as pd

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate, selected
from study.cells import STUDY, of_documents, signed
from study.publish import documents_of

ROWS = STUDY / "real/rows/price.csv"
KEYS = ["model", "evaluation", "method", "length"]


def main(runs: list[Path]) -> None:
    rows = pd.concat(documents_of(run).assign(model=run.name) for run in runs)
    rows = rows[[*KEYS, "document", "nats", "targets"]]
    rows = rows[rows.evaluation.isin(["price", "beyond"]) & (rows.method != "fresh")]
    rows.sort_values([*KEYS, "document"]).to_csv(ROWS, index=False)
    print(f"{ROWS}: {len(rows)} rows")


def added(model: str, evaluation: str, lengths: tuple[int, ...], other: dict) -> Table:
    """Nats per token that each method adds to another one in rows of the same or a given length;
    all rows of a book in an evaluation end at the same token."""
    rows = selected(pd.read_csv(ROWS), {"model": model, "evaluation": evaluation})
    lines = {method: {"method": method} for method in sorted(rows.method.unique())}
    columns = {f"{length:,}": {"length": length, "less": other} for length in lengths}
    made = of_documents(rows, lines, columns, cell=to_another)
    return Table("", made.head, [line for line in made.rows if any(line[1:])])


def to_another(one: Estimate) -> str:
    """Empty for a method beside itself."""
    return "" if one.low == one.high else signed(one)


PLAIN, IN_L = {"method": "none"}, {"method": "none", "length": 32_768}
TABLES = {
    "price": lambda: added("smollm2", "price", (1_024, 2_048, 8_192), PLAIN),
    "price-beyond": lambda: added("smollm2", "beyond", (12_288,), {"method": "yarn:2"}),
    "price-gemma": lambda: added("gemma3", "price", (512, 8_192, 32_768), PLAIN),
    "price-gemma-beyond": lambda: added("gemma3", "beyond", (32_768, 49_152, 65_536), IN_L),
}


if __name__ == "__main__":
    main([Path(run) for run in sys.argv[1:]])
