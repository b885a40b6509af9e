"""Tables of the page on positions that depend on content."""

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate, selected
from study.cells import rows_of, table
from study.order.tables import AT_L, FOUND, ORDER, known


def least(one: Estimate) -> str:
    return f"{one.values.min():.2f}"


def recall() -> Table:
    """Order of two settings at L, found and order beyond L, and bits; the best order first."""
    rows = known(rows_of("content/rows/sweep"))
    best = selected(rows, ORDER).groupby("encoding").order.mean().sort_values(ascending=False)
    columns = {
        "order at L": AT_L,
        "found": FOUND,
        "order": ORDER,
        "least found": FOUND | {"cell": least},
        "least order": ORDER | {"cell": least},
    }
    made = table(rows, {name: {"encoding": name} for name in best.index}, columns)
    bits = {name: cell for name, cell in text().rows}
    return Table("", [*made.head, "bits"], [[*row, bits.get(row[0], "-")] for row in made.rows])


def text() -> Table:
    """Bits per byte on source code at 8 L less those at L, beside two of the page on text."""
    rows = rows_of("content/rows/text", "text/rows/sweep")
    beside = rows.encoding.isin(["rope", "fox"]) | (rows.sweep == "content/rows/text")
    rows = rows[beside & (rows.protocol == "same_token") & (rows.method == "none")]
    columns = {"1,024 less 128": {"length": 1_024, "less": {"length": 128}}}
    return table(rows, {name: {"encoding": name} for name in rows.encoding.unique()}, columns)


TABLES = {"content": recall}
