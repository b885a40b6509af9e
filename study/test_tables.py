"""Agreement of the pages with the published rows."""

import re

import pandas as pd
import pytest

from study import tables
from study.cells import STUDY

PAGES = [path.relative_to(STUDY) for path in sorted(STUDY.glob("*/*.md"))]
DECIMAL = r"(?<![\d.:])\d+\.\d+(?!\d|\.\d|M\b| MB)"  # no version, no size


def split(text):
    """Split a page into its table lines and its sentences (those of its answer, if it has such a
    heading), without code and links."""
    lines = text.splitlines()
    table_lines = "\n".join(line for line in lines if line.startswith("|"))
    findings = (text.partition("## Answer")[2] or text).splitlines()
    prose = "\n".join(line for line in findings if not line.startswith("|"))
    prose = re.sub(r"(?s)```.*?```|`[^`]*`|\]\([^)]*\)|\d{4}\.\d{5}|<!--.*?-->", "", prose)
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
    "folder", [path.parent for path in sorted(STUDY.glob("*/rows/*/documents.csv.xz"))], ids=str
)
def test_published_accuracies_match_the_documents(folder):
    keys = ["protocol", "length", "part"]
    rows = pd.read_csv(folder / "rows.csv.xz", low_memory=False)
    rows = rows[rows.answers > 0].assign(part=rows.part.astype(object).fillna("").astype(str))
    rows = rows.assign(name=rows.run + "@" + rows.method).set_index([*keys, "name"])
    documents = pd.read_csv(folder / "documents.csv.xz", dtype={"part": str})
    documents = documents.assign(part=documents.part.fillna("")).set_index([*keys, "answers"])
    right = (
        documents.drop(columns="document").stack().rename("right").dropna().reset_index("answers")
    )
    right = right.groupby(level=[0, 1, 2, 3]).sum().rename_axis(rows.index.names)
    assert rows.index.is_unique and set(rows.index) == set(right.index)
    right = right.loc[rows.index]
    assert (right.answers == rows.answers).all()
    assert ((right.right / right.answers - rows.accuracy).abs() < 1e-12).all()
