"""Tables for papers: what stands in them, and that they are Markdown and LaTeX."""

import re
from dataclasses import replace

import pytest
from answering import LONG, cell, gathered, of_text

from posenc_jax import display
from posenc_jax.report.frames import Estimate
from posenc_jax.report.tables import alone, every, table, write


@pytest.fixture
def data():
    return gathered(
        cell("rope-a", "none", 0.5),
        cell("rope-a", "dynamic_yarn", 0.9, by_gap=(0.8, 0.9)),
        cell("rope-a", "yarn:8", 0.9, by_gap=(0.8, 0.9)),
        cell("rope-a", "window", 0.3, by_gap=(1.0, 0.2)),
        cell("rope-b", "none", 0.95, trained=LONG),
        of_text("alibi_b", 2.0),
    )


def test_a_table_per_protocol_the_best_first_and_nothing_twice(data):
    data.points.loc[data.points.part == "1-64", "answers"] = 19.0
    answers, gap, text = every(data)
    assert [row[0] for row in answers.rows] == [
        "RoPE, oracle",
        "RoPE with YaRN by 8",
        "RoPE",
        "RoPE, window of L",
        "ceiling",
    ]
    assert gap.head == ["", "1-64", "65-512"] and gap.rows[0] == [
        "RoPE with YaRN by 8",
        "–",
        "0.900",
    ]
    assert gap.caption.endswith("–: fewer than 20 answers.")
    assert text.rows == [["alibi_b", "2.000", "2.000"]] and "bits per byte" in text.caption


def test_a_table_of_selections_pairs_differences_by_seed():
    cells = [
        [row | {"seed": seed} for row in cell("rope", method, value)]
        for seed in range(3)
        for method, value in (("none", 0.2 + 0.1 * seed), ("yarn:8", 0.5 + 0.1 * seed))
    ]
    frame = gathered(*cells).points
    rows = {
        "RoPE": {"method": "none"},
        "YaRN": {"method": re.compile("yarn:.*")},
        "PI": {"method": "pi"},
    }
    columns = {
        "all": {"protocol": "answers"},
        "near": {"protocol": "gap", "part": ["1-64"]},
        "less RoPE": {"protocol": "answers", "less": {"method": "none"}},
        "ceiling": {"protocol": "answers", "value": "ceiling"},
    }
    made = table(frame, rows, columns, "accuracy", caption="a caption")
    assert made.caption == "a caption" and made.head == ["", *columns]
    assert made.rows == [
        ["RoPE", "0.30 ± 0.25", "1.000 ± 0.000", "0.000 ± 0.000", "1.000 ± 0.000"],
        ["YaRN", "0.60 ± 0.25", "1.000 ± 0.000", "0.300 ± 0.000", "1.000 ± 0.000"],
        ["PI", "–", "–", "–", "–"],
    ]
    answered = frame[frame.protocol == "answers"]
    made = table(answered, "method", value="accuracy", cell=alone)
    assert made.rows == [["none", "0.300"], ["yarn:8", "0.600"]] and made.head == ["", "512"]
    with pytest.raises(ValueError, match="a mean of unlike rows: select by method"):
        table(answered, "group", value="accuracy")


def test_a_selection_has_a_form_of_its_own_and_a_column_counts_before_its_row():
    cells = [[row | {"seed": seed} for row in cell("rope", "none", 0.5)] for seed in range(2)]
    frame = gathered(*cells).points

    def count(one):
        return str(len(one.values))

    columns = {
        "mean": {"protocol": "answers"},
        "seeds": {"protocol": "answers", "cell": count},
        "PI": {"protocol": "answers", "method": "pi"},
    }
    rows = {"RoPE": {"method": "none"}, "exact": {"method": "none", "cell": alone}}
    made = table(frame, rows, columns, "accuracy", corner="method", missing="?")
    assert made.head == ["method", "mean", "seeds", "PI"]
    assert made.rows == [["RoPE", "0.50", "2", "?"], ["exact", "0.500", "2", "?"]]
    other = {"RoPE": {"method": "none"}, "PI": {"method": "pi"}}
    column = {"as trained": {"protocol": "answers", "method": "none"}}
    assert table(frame, other, column, "accuracy", cell=count).rows == [["RoPE", "2"], ["PI", "2"]]

    def over_all(rows, value, less):
        return Estimate(rows[value].mean() - less[value].mean(), None, None, rows[value])

    column["as trained"] |= {"less": {"seed": 0}}
    made = table(frame, rows, column, "accuracy", cell=alone, over=over_all)
    assert made.rows == [["RoPE", "0.000"], ["exact", "0.000"]]


def test_parts_are_in_the_order_of_all_their_numbers():
    row = cell("rope-a", "none", 0.5)[0] | {"protocol": "revised"}
    parts = ["3-8", "1-512", "1-8", "0", "1-32"]
    made = every(gathered([row | {"part": part} for part in parts]))[0]
    assert made.head == ["", "0", "1-8", "1-32", "1-512", "3-8"]


def test_seeds_are_a_mean_and_a_standard_deviation_and_unlike_numbers_are_listed():
    data = [cell("rope-a", "none", value) for value in (0.4, 0.6)]
    data[1] = [row | {"seed": 1} for row in data[1]]
    table = every(gathered(*data))[0]
    assert table.rows[0] == ["RoPE", "0.500 ±0.141"] and "over 2 seeds" in table.caption
    few = gathered(*data)
    few.points.loc[few.points.part == "1-64", "answers"] = 19.0
    assert every(few)[1].rows == [["RoPE", "–", "0.500 ±0.000"]]
    table = every(gathered(*data, cell("fire-a", "none", 0.9)))[0]
    assert "standard deviation over 1 to 2 seeds" in table.caption
    assert table.head == ["", "512", "seeds"]
    assert table.rows == [
        ["FIRE", "0.900", "1"],
        ["RoPE", "0.500 ±0.141", "2"],
        ["ceiling", "1.000", "–"],
    ]


def test_files_are_markdown_and_latex_and_earlier_ones_do_not_stay(data, tmp_path):
    paths = write(data, tmp_path)
    assert [path.name for path in paths] == ["tables.md", "tables.tex"]
    for block in paths[0].read_text().split("\n\n")[1::2]:
        lines = block.splitlines()
        assert len({line.count("|") for line in lines}) == 1 and lines[1].startswith("| ---")
    latex = paths[1].read_text()
    assert r"alibi\_b & 2.000 & 2.000 \\" in latex
    assert not re.search(r"(?<!\\)[_%#]", latex)
    answered, *_ = latex.split("\n\n")
    assert answered.splitlines()[2] == r"\label{tab:answers}"
    below = answered.rpartition(r"\midrule")[2].splitlines()
    assert [line.partition(" &")[0] for line in below[1:3]] == ["RoPE, window of L", "ceiling"]
    assert latex.count(r"\label{") == 3 and latex.count(r"\midrule") == 5  # text has no baseline
    assert display.tex("50% ±1 a_b \\ x – y") == r"50\% $\pm$1 a\_b \textbackslash{} x -- y"
    assert display.markdown(display.Table("", ["a|b"], [])).count("\\|") == 1
    empty = replace(data, points=data.points.iloc[:0])
    assert write(empty, tmp_path) == [] and not list(tmp_path.iterdir())


def test_on_a_terminal_columns_that_do_not_fit_continue_under_the_same_names():
    names = [f"yarn:8:beta_fast={n}:beta_slow=1+logn" for n in (16, 17)]
    numbers = [*map(display.decimal, range(11)), display.decimal(None)]
    table = display.Table("words " * 30, ["", *numbers], [[name, *numbers] for name in names])
    lines = display.text(table).splitlines()
    assert max(map(len, lines)) <= display.LINE
    assert [line for line in lines if line in names] == 2 * names  # each on a line of its own
    words = " ".join(lines).split()
    assert (words.count("10.000"), words.count("-")) == (3, 2)
