"""Agreement of the pages with the published rows."""

import re

import pandas as pd
import pytest

from study import tables
from study.cells import STUDY

PAGES = [path.relative_to(STUDY) for path in sorted(STUDY.glob("*/*.md"))]
DECIMAL = r"(?<![\d.:])\d+\.\d+(?!\d|\.\d|M\b| MB)"  # no version, no size


def split(text):
    """Split a page into its table lines and its answer, without code and links."""
    lines = text.splitlines()
    table_lines = "\n".join(line for line in lines if line.startswith("|"))
    findings = text.partition("## Answer")[2].splitlines()
    prose = "\n".join(line for line in findings if not line.startswith("|"))
    prose = re.sub(r"(?s)```.*?```|`[^`]*`|\]\([^)]*\)|arXiv:\d+\.\d+|<!--.*?-->", "", prose)
    return table_lines, prose


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_match_the_published_rows(page):
    text = (STUDY / page).read_text()
    assert tables.written(page, text) == text


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_decimal_of_an_answer_is_in_a_table_of_its_page(page):
    table_lines, prose = split((STUDY / page).read_text())
    known = [float(number) for number in re.findall(DECIMAL, table_lines)]
    for number in re.findall(DECIMAL, prose):
        digits = len(number.partition(".")[2])
        assert float(number) in {round(value, digits) for value in known}, number


@pytest.mark.parametrize(
    "folder", [path.parent for path in sorted(STUDY.glob("*/rows/*/documents.parquet"))], ids=str
)
def test_published_accuracies_match_the_documents(folder):
    keys = ["run", "method", "protocol", "length", "part"]
    rows = pd.read_csv(folder / "rows.csv.xz", low_memory=False)
    rows = rows[rows.answers > 0].assign(part=rows.part.fillna("").astype(str)).set_index(keys)
    documents = pd.read_parquet(folder / "documents.parquet")
    documents["part"] = documents.part.astype(object).fillna("").astype(str)
    sums = documents.groupby(keys, observed=True)[["answers", "right"]].sum()
    assert rows.index.is_unique and set(rows.index) == set(sums.index)
    sums = sums.loc[rows.index]
    assert (sums.answers == rows.answers).all()
    assert ((sums.right / sums.answers - rows.accuracy).abs() < 1e-12).all()
