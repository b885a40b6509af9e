"""The tables of the pages in this folder, from the published rows: python -m study.tables

A table of a page stands between `<!-- table NAME -->` and `<!-- end -->`; this writes it there.
test_tables.py finds each of them unchanged, and every decimal of a page's sentences in its tables.
"""

import re

from posenc_jax import display
from study import summary
from study.books import tables as books
from study.cells import STUDY
from study.content import tables as content
from study.decoding import tables as decoding
from study.field import tables as field
from study.gpu import tables as gpu
from study.mixture import tables as mixture
from study.order import law, pretrained
from study.order import tables as order
from study.pool import tables as pool
from study.published import tables as published
from study.real import price, reach
from study.real import tables as real
from study.retrieval import tables as retrieval
from study.speed import tables as speed
from study.text import tables as text
from study.tuning import tables as tuning

PAGES = {
    "../README.md": summary.TABLES,
    "order/README.md": order.TABLES | law.TABLES,
    "order/pretrained.md": pretrained.TABLES,
    "field/README.md": field.TABLES,
    "content/README.md": content.TABLES,
    "decoding/README.md": decoding.TABLES,
    "real/README.md": real.TABLES,
    "real/price.md": price.TABLES,
    "real/reach.md": reach.TABLES,
    "retrieval/README.md": retrieval.RETRIEVAL,
    "retrieval/shipped.md": retrieval.ADDITIONS,
    "text/README.md": text.TEXT,
    "mixture/README.md": mixture.TABLES,
    "books/README.md": books.TABLES,
    "text/factors.md": text.OF_FACTORS,
    "speed/README.md": speed.TABLES,
    "gpu/README.md": gpu.TABLES,
    "tuning/README.md": tuning.TABLES,
    "published/README.md": published.TABLES,
    "pool/README.md": pool.TABLES,
}


def markdown(table: display.Table) -> str:
    """A table of a page, whose names have markup."""
    return re.sub(r"\\([`*])", r"\1", display.markdown(table)).lstrip() + "\n"


def written(page: str, text: str) -> str:
    """The page with its tables as the rows have them."""
    for name, make in PAGES[page].items():
        before, begin, rest = text.partition(f"<!-- table {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"{page} has no place for the table {name!r}")
        text = before + begin + markdown(make()) + end + after
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = STUDY / page
        path.write_text(written(page, path.read_text()))
