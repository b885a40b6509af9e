"""Publish what was measured on a real model: python -m study.real.publish RUN...

Writes the losses of every cell by document to rows/documents.csv.xz beside this file, where cells
of other runs stay, and draws real.png from them.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from posenc_jax.display import Line
from posenc_jax.evaluation import cells
from posenc_jax.evaluation.cells import label
from posenc_jax.plots import curves, style
from study.real.tables import L, losses_of_copies, lost, real

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
ROWS = HERE / "rows" / "documents.csv.xz"
PICTURE = HERE / "real.png"
NAMES = ("none", "ntk", "self_extend", "streaming", "yarn")
KEYS = ["method", "protocol", "length", "part", "token_hash", "processor"]


def rows_of(run: Path) -> pd.DataFrame:
    """A row per cell and document."""
    found = []
    for cell in cells.read_record(run / "eval").cells:
        sums, facts = cell.sums, cell.facts | {"method": label(cell.facts)}
        columns = {name: facts[name] for name in KEYS}
        own = {"nats": sums.nats.round(4), "targets": sums.tokens, "right": sums.right}
        found.append(pd.DataFrame(columns | {"document": range(len(sums.nats))} | own))
    return pd.concat(found)


def merged(runs: list[Path]) -> pd.DataFrame:
    """Rows of runs and the published ones, each cell once."""
    order = [*KEYS, "document"]
    rows = pd.concat([*map(rows_of, runs), pd.read_csv(ROWS)])
    rows = rows.drop_duplicates(order).sort_values(order)
    return rows.astype({"targets": int, "right": int})


@style.styled
def picture() -> "Figure":
    """Loss over a fresh row of L tokens by length, with intervals over books, and loss of copied
    passages by the tokens back to the copy, in rows of 1.5 L and 4 L. YaRN and NTK have the factor
    2, 4 or 8, whichever reaches the row."""
    figure, (losses, *passages) = style.panels(1, 3, (15.5, 4.5))
    measured = real().index.droplevel("document").unique()
    for name in NAMES:
        pairs = [(method, n) for method, n in measured if method == with_factor(name, n)]
        lengths = sorted(n for _, n in pairs)
        found = [lost(with_factor(name, n), n) for n in lengths]
        band = [one.low for one in found], [one.high for one in found]
        draw(losses, name, lengths, [one.mean for one in found], band)
    losses.axhline(0, color="0.6", linewidth=1, zorder=0)
    style.length_axis(losses, [1_024, 4_096, 8_192, 16_384, 65_536], [L])
    losses.set(xlabel="tokens in the row", ylabel="nats per token over a fresh row of L")
    losses.set_ylim(-0.06, 0.7)  # plain RoPE leaves it beyond L, by far

    for axes, length in zip(passages, (12_288, 32_768), strict=True):
        means = losses_of_copies(length)
        for name in NAMES:
            method = with_factor(name, length)
            if method in means.index.unique("method"):
                own = means.loc[method, True]
                draw(axes, name, list(own.index), list(own))
        unread = means.loc["streaming", False]
        axes.plot(unread.index, unread, color="0.5", linestyle=":")
        ticks = [n for n in (1_024, 4_096, 8_192, 12_288, 32_768) if n <= length]
        style.length_axis(axes, ticks, [L], words_at="bottom")
        axes.set(xlabel=f"tokens back to the copy, rows of {length:,}", ylim=(0, 4.5))
    passages[0].set_ylabel("nats per token of copied passages")
    losses.plot([], [], color="0.5", linestyle=":", label="without a copy")
    style.finish(figure, losses)
    return figure


def with_factor(name: str, length: int) -> str:
    """The method of a line in rows of this length."""
    factor = next(f for f in (2, 4, 8) if f * L >= length)
    return f"{name}:{factor}" if name in ("yarn", "ntk") else name


def draw(axes, name: str, x: list, y: list, band: tuple | None = None) -> None:
    plain = dict(color="0.2", marker="o", linestyle="-")
    look = plain if name == "none" else style.look_of_method(name)
    curves.draw_lines(axes, [Line(name, x, y, look, band)])


if __name__ == "__main__":
    merged([Path(run) for run in sys.argv[1:]]).to_csv(ROWS, index=False)
    style.save(picture(), PICTURE)
