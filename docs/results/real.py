"""Publish what was measured on a real model: python docs/results/real.py RUN

Writes the losses of every cell by document to real/documents.csv.xz beside this file, and draws
docs/pictures/real.png from them.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import tables

from posenc_jax.evaluation import sums_file
from posenc_jax.evaluation.sums import label
from posenc_jax.lines import Line
from posenc_jax.plots import curves, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
ROWS = HERE / "real" / "documents.csv.xz"
PICTURE = HERE.parent / "pictures" / "real.png"
KEYS = ["method", "protocol", "length", "part"]


def rows_of(run: Path) -> pd.DataFrame:
    """A row per cell and document; a cell of several evaluations is written once."""
    found = []
    for cell in sums_file.read(run / "eval").cells:
        own = pd.DataFrame({"nats": cell.sums.nats.round(4), "targets": cell.sums.tokens})
        facts = cell.facts | {"method": label(cell.facts)}
        columns = {name: facts[name] for name in (*KEYS, "token_hash")}
        found.append(own.assign(document=range(len(own)), **columns))
    order = [*KEYS, "token_hash", "document"]
    rows = pd.concat(found).drop_duplicates(order).sort_values(order)
    return rows[[*order, "nats", "targets"]].astype({"targets": int})


@style.styled
def picture() -> "Figure":
    """Loss over a fresh row of L tokens, by length, with intervals over books."""
    rows = tables.real()
    figure, (axes,) = style.panels(1, 1)
    for method in rows.index.unique("method"):
        lengths = list(rows.loc[method].index.unique("length"))
        found = [tables.lost(method, length) for length in lengths]
        band = [one.low for one in found], [one.high for one in found]
        look = dict(zip(("color", "marker", "linestyle"), look_of(method), strict=True))
        line = Line(method, lengths, [one.mean for one in found], look, band)
        curves.draw_lines(axes, [line])
    axes.axhline(0, color="0.6", linewidth=1, zorder=0)
    style.length_axis(axes, sorted(rows.index.unique("length")), [tables.REAL_L])
    axes.set(xlabel="tokens in the row", ylabel="nats per token over a fresh row of L")
    axes.set_ylim(-0.06, 0.2)  # plain RoPE leaves it beyond L, by far
    style.legend(figure, axes)
    return figure


def look_of(method: str) -> tuple:
    name = method.partition(":")[0]
    return ("0.2", "o", "-") if name == "none" else style.look_of_method(name)


if __name__ == "__main__":
    ROWS.parent.mkdir(exist_ok=True)
    rows_of(Path(sys.argv[1])).to_csv(ROWS, index=False)
    style.save(picture(), PICTURE)
