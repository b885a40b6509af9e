"""Table of price.md, what static factors cost up to L: python -m study.real.price RUN...

Gathers the losses of the evaluations `price` of the runs by document in rows/price.csv.
"""

import sys
from pathlib import Path

import pandas as pd

from posenc_jax.evaluation import cells
from posenc_jax.evaluation.cells import label
from study.cells import STUDY, less, markdown, signed

ROWS = STUDY / "real/rows/price.csv"


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


def prices() -> str:
    """Nats per token added to those of the same row without an extension, with 95% intervals over
    the books."""
    rows = pd.read_csv(ROWS).set_index(["model", "method", "length"]).sort_index()
    lengths, body = sorted(rows.index.unique("length")), []
    for model, method in dict.fromkeys((one, two) for one, two, _ in rows.index):
        if method == "none":
            continue
        cells = [
            signed(less(rows.loc[(model, method, n)], rows.loc[(model, "none", n)]))
            if (model, method, n) in rows.index
            else ""
            for n in lengths
        ]
        body.append([model, method, *cells])
    return markdown(["", "", *(f"{n:,}" for n in lengths)], body)


if __name__ == "__main__":
    main([Path(run) for run in sys.argv[1:]])
