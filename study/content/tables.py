"""Tables of the page on positions that depend on content."""

import pandas as pd

from study.cells import STUDY, markdown, seeds, short
from study.order import tables as order


def recall() -> str:
    """Order of two settings at L, found and order beyond L; the best order beyond L first."""
    rows = pd.read_csv(STUDY / "content/rows/sweep/rows.csv.xz")
    near = order.measured(rows, "last_of_two", "within", order.L)
    parts, body = (near, order.measured(rows, "found"), order.orders(rows)), []
    for name in rows.encoding.unique():
        at_L, reached, ordered = (part[part.encoding == name] for part in parts)
        each = seeds(ordered, "order")
        cells = [seeds(at_L, "accuracy"), seeds(reached, "found"), each]
        ends = [f"{one.min():.2f} to {one.max():.2f}" for one in cells[1:]]
        body.append((each.mean(), [name, *map(short, cells), *ends, str(len(each))]))
    head = ["", "order at L", "found", "order", "found by seed", "order by seed"]
    head.append("seeds with order")
    return markdown(head, [line for _, line in sorted(body, reverse=True)])


def text() -> str:
    """Bits per byte on source code at L and at 8 L, beside three of the page on text."""
    files = (STUDY / one / "rows.csv.xz" for one in ("content/rows/text", "text/rows/sweep"))
    own, others = (pd.read_csv(file, low_memory=False) for file in files)
    rows = pd.concat([own, others[others.encoding.isin(["rope", "fire", "fox"])]])
    rows = rows[(rows.protocol == "same_token") & (rows.extension == "none") & rows.window.isna()]
    body = []
    for name, found in rows.groupby("encoding"):
        near, far = (seeds(found[found.length == length], "bpb") for length in (128, 1_024))
        body.append(((far - near).mean(), [name, *map(short, (near, far, far - near))]))
    head = ["", "128", "1,024", "1,024 less 128"]
    return markdown(head, [line for _, line in sorted(body)])


TABLES = {"content": recall, "content-text": text}
