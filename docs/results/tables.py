"""The tables of the pages in this folder, from the published rows: python docs/results/tables.py

A table of a page stands between `<!-- table NAME -->` and `<!-- end -->`; this writes it there.
tests/unit/test_pages.py finds each of them unchanged, and every decimal of a page's sentences in
its tables.
"""

from pages import content, decoding, order, performance, real
from pages.table_cells import RESULTS

PAGES = {
    "order.md": order.TABLES,
    "content.md": content.TABLES,
    "decoding.md": decoding.TABLES,
    "real.md": real.TABLES,
    "../performance.md": performance.TABLES,
}


def written(page: str, text: str) -> str:
    """The page with its tables as the rows have them."""
    for name, make in PAGES[page].items():
        before, begin, rest = text.partition(f"<!-- table {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"{page} has no place for the table {name!r}")
        text = before + begin + make() + end + after
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = RESULTS / page
        path.write_text(written(page, path.read_text()))
