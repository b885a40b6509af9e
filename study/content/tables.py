"""Tables of the page on positions that depend on content."""

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate, selected
from study.cells import count, rows_of, table
from study.order.tables import AT_L, FOUND, ORDER, known


def ends(one: Estimate) -> str:
    return f"{one.values.min():.2f} to {one.values.max():.2f}"


def recall() -> Table:
    """Order of two settings at L, found and order beyond L; the best order beyond L first."""
    rows = known(rows_of("content/rows/sweep"))
    best = selected(rows, ORDER).groupby("encoding").order.mean().sort_values(ascending=False)
    columns = {
        "order at L": AT_L,
        "found": FOUND,
        "order": ORDER,
        "found by seed": FOUND | {"cell": ends},
        "order by seed": ORDER | {"cell": ends},
        "seeds with order": ORDER | {"cell": count},
    }
    return table(rows, {name: {"encoding": name} for name in best.index}, columns)


def text() -> Table:
    """Bits per byte on source code at L and at 8 L, beside three of the page on text."""
    rows = rows_of("content/rows/text", "text/rows/sweep")
    beside = rows.encoding.isin(["rope", "fire", "fox"]) | (rows.sweep == "content/rows/text")
    rows = rows[beside & (rows.protocol == "same_token") & (rows.method == "none")]
    means = rows.pivot_table("bpb", "encoding", "length")
    near, far = {"length": 128}, {"length": 1_024}
    columns = {"128": near, "1,024": far, "1,024 less 128": far | {"less": near}}
    least = (means[1_024] - means[128]).sort_values()
    return table(rows, {name: {"encoding": name} for name in least.index}, columns)


TABLES = {"content": recall, "content-text": text}
