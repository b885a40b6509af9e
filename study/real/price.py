"""Tables of price.md, what static factors cost: python -m study.real.price RUN...

Gathers the losses of every evaluation of the runs by document in rows/price.csv.
"""

import sys
from pathlib import Path

import pandas as pd

from posenc_jax.evaluation import cells
from posenc_jax.evaluation.cells import label
from study.cells import STUDY, less, markdown, signed

ROWS = STUDY / "real/rows/price.csv"
BEYOND = 12_288  # 1.5 times SmolLM2's L


def main(runs: list[Path]) -> None:
    found = []
    for run in runs:
        for cell in cells.read_record(run / "eval").cells:
            own = pd.DataFrame({"nats": cell.sums.nats.round(4), "targets": cell.sums.tokens})
            facts = {"model": run.name, "method": label(cell.facts), "length": cell.facts["length"]}
            found.append(own.assign(**facts, document=range(len(own))))
    rows = pd.concat(found).sort_values(["model", "method", "length", "document"])
    rows.to_csv(ROWS, index=False)
    print(f"{ROWS}: {len(rows)} rows")


def losses() -> pd.DataFrame:
    return pd.read_csv(ROWS).set_index(["model", "method", "length"]).sort_index()


def added(rows: pd.DataFrame, model: str, method: str, length: int, other: str) -> str:
    """Nats per token that a method adds to another one; empty where one was not measured."""
    own, theirs = (model, method, length), (model, other, length)
    if own not in rows.index or theirs not in rows.index:
        return ""
    return signed(less(rows.loc[own], rows.loc[theirs]))


def prices() -> str:
    """Nats per token added to those of the same row without an extension, with 95% intervals over
    the books."""
    rows = losses()
    lengths = sorted(rows.xs("none", level="method").index.unique("length"))
    near = rows.index[rows.index.isin(lengths, level="length")]
    body = [
        [model, method, *(added(rows, model, method, length, "none") for length in lengths)]
        for model, method in dict.fromkeys((model, method) for model, method, _ in near)
        if method != "none"
    ]
    return markdown(["", "", *(f"{length:,}" for length in lengths)], body)


def beyond() -> str:
    """Nats per token at 1.5 L that a method adds to YaRN by 2."""
    rows = losses()
    methods = rows.xs(("smollm2", BEYOND), level=("model", "length")).index.unique()
    body = [
        [method, added(rows, "smollm2", method, BEYOND, "yarn:2")]
        for method in methods
        if method != "yarn:2"
    ]
    return markdown(["", f"{BEYOND:,}"], body)


TABLES = {"price": prices, "price-beyond": beyond}


if __name__ == "__main__":
    main([Path(run) for run in sys.argv[1:]])
