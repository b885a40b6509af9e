"""Publish what was measured on a real model: python docs/results/real.py RUN [RUN ...]

Writes the losses of every cell by document to real/documents.csv.xz beside this file, where cells
of other runs stay, and draws docs/pictures/real.png from them.
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
    """A row per cell and document."""
    found = []
    for cell in sums_file.read(run / "eval").cells:
        sums, facts = cell.sums, cell.facts | {"method": label(cell.facts)}
        columns = {name: facts[name] for name in (*KEYS, "token_hash")}
        own = {"nats": sums.nats.round(4), "targets": sums.tokens, "right": sums.right}
        found.append(pd.DataFrame(columns | {"document": range(len(sums.nats))} | own))
    return pd.concat(found)


def merged(runs: list[Path]) -> pd.DataFrame:
    """Rows of runs and the published ones, each cell once."""
    order = [*KEYS, "token_hash", "document"]
    rows = pd.concat([*map(rows_of, runs), pd.read_csv(ROWS)])
    rows = rows.drop_duplicates(order).sort_values(order)
    return rows.astype({"targets": int, "right": int})


@style.styled
def picture() -> "Figure":
    """Loss over a fresh row of L tokens by length, with intervals over books, and loss of copied
    passages by the tokens back to the first copy."""
    rows = tables.real()
    figure, (losses, passages) = style.panels(1, 2, (11.5, 4.5))
    for method in rows.drop("window:size=8192").index.unique("method"):  # half a nat above
        lengths = list(rows.loc[method].index.unique("length"))
        found = [tables.lost(method, length) for length in lengths]
        band = [one.low for one in found], [one.high for one in found]
        draw(losses, method, lengths, [one.mean for one in found], band)
    losses.axhline(0, color="0.6", linewidth=1, zorder=0)
    style.length_axis(losses, [1_024, 2_048, 4_096, 8_192, 16_384], [tables.REAL_L])
    losses.set(xlabel="tokens in the row", ylabel="nats per token over a fresh row of L")
    losses.set_ylim(-0.06, 0.2)  # plain RoPE leaves it beyond L, by far

    means = tables.losses_of_copies()
    for method in means.index.unique("method"):
        own = means.loc[method, True]
        draw(passages, method, list(own.index), list(own))
    unread = means.loc["streaming", False]
    passages.plot(unread.index, unread, color="0.5", linestyle=":", label="without a copy")
    style.length_axis(
        passages, [1_024, 2_048, 4_096, 8_192, 12_288], [tables.REAL_L], words_at="bottom"
    )
    passages.set(xlabel="tokens back to the copy", ylabel="nats per token of copied passages")
    losses.plot([], [], color="0.5", linestyle=":", label="without a copy")
    style.legend(figure, losses)
    return figure


def draw(axes, method: str, x: list, y: list, band: tuple | None = None) -> None:
    look = dict(zip(("color", "marker", "linestyle"), look_of(method), strict=True))
    curves.draw_lines(axes, [Line(method, x, y, look, band)])


def look_of(method: str) -> tuple:
    name = method.partition(":")[0]
    return ("0.2", "o", "-") if name == "none" else style.look_of_method(name)


if __name__ == "__main__":
    merged([Path(run) for run in sys.argv[1:]]).to_csv(ROWS, index=False)
    style.save(picture(), PICTURE)
