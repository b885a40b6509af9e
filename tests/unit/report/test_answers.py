"""Answers in a report: what is drawn of runs whose accuracies are known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from answering import LONG, PARTS, L, cell, gathered, of_text

from posenc_jax.report import answers, page, sections, table

FLOOR = "window: the last L tokens"


@pytest.fixture
def data():
    return gathered(
        cell("rope-a", "none", 0.5, by_gap=(0.9, 0.4)),
        cell("rope-a", "yarn:8", 0.9, by_gap=(0.8, 0.9)),
        cell("rope-a", "dynamic_yarn", 0.9, by_gap=(0.8, 0.9)),
        cell("rope-a", "ntk:8", 0.7, by_gap=(0.9, 0.6)),
        cell("rope-a", "window", 0.3, by_gap=(1.0, 0.2)),
        cell("fire-a", "none", 0.8, by_gap=(0.9, 0.8)),
        cell("fire-a", "logn", 0.81, by_gap=(0.9, 0.81)),
        cell("rope-b", "none", 0.95, trained=LONG, by_gap=(1.0, 0.95)),
        of_text("alibi", 2.0),
    )


def grid(*cells, **options):
    return answers.grid(answers.collect(gathered(*cells)), **options)


def test_an_extension_that_gains_is_drawn_beside_its_encoding(data):
    results = answers.collect(data)
    drawn = [line.name for line in answers.lines(data, results)]
    # FIRE gains less by log-n than is worth a line; of equals the plainer method has it.
    assert drawn[:3] == ["rope + yarn:8", "fire", "rope"]
    assert drawn[3:] == ["ceiling: all that a window holds", FLOOR, "rope, oracle"]
    few = [line.name for line in answers.lines(data, results, most=2)]
    assert few == ["rope + yarn:8", "rope", *drawn[3:]]


def test_the_map_has_the_oracle_first_the_floor_last_and_nothing_twice(data):
    values, names, parts = answers.grid(answers.collect(data))
    best = ["rope + yarn:8", "fire + logn", "fire", "rope + ntk:8", "rope"]
    assert names == ["rope, oracle", *best, "windows of L (mean)"]
    assert parts == PARTS and values[1].tolist() == [0.8, 0.9]
    _, names, _ = answers.grid(answers.collect(data), brief=True)
    best.remove("rope + ntk:8")
    assert names == ["rope, oracle", *best, "windows of L (mean)"]


def test_the_map_leaves_out_methods_that_lose_or_change_nothing():
    plain = cell("rope-a", "none", 0.9, by_gap=(0.9, 0.9))
    assert grid(plain, cell("rope-a", "ntk:8", 0.8, by_gap=(0.9, 0.8)), brief=True)[1] == ["rope"]
    assert grid(plain, cell("rope-a", "yarn:1", 0.9, by_gap=(0.9, 0.9)))[1] == ["rope"]


def test_methods_equal_to_the_window_share_its_row():
    values, names, _ = grid(
        cell("rope-a", "none", 0.25, by_gap=(0.9, 0.2)),
        cell("rope-a", "streaming", 0.3, by_gap=(0.7, 0.25)),
        cell("rope-a", "logn", 0.35, by_gap=(1.0, 0.3)),
        cell("rope-a", "window", 0.3, by_gap=(1.0, 0.2)),
    )
    assert names == ["rope + logn", "rope", "windows of L (mean), streaming"]
    assert values[-1].tolist() == [1.0, 0.2]


def test_a_cell_of_few_answers_shows_no_share():
    rows = cell("rope-a", "none", 0.5, by_gap=(0.25, 0.4))
    few, enough = rows[1], rows[2]
    few["answers"], enough["answers"] = answers.FEWEST_ANSWERS - 1, answers.FEWEST_ANSWERS
    values, _, _ = grid(rows)
    assert np.isnan(values[0, 0]) and values[0, 1] == 0.4


def test_names_are_short_and_distinct_and_labels_win():
    data = gathered(
        cell("rope-a", "none", 0.5),
        cell("rope-b", "none", 0.7, trained=2 * L),
        cell("rope-c", "none", 0.9, trained=LONG),
        cell("rope-d", "none", 0.9, trained=2 * LONG),
        cell("fire-a", "none", 0.8),
    )
    names = answers.collect(data).names
    assert names["fire-a"] == "fire" and len(set(names.values())) == 5
    prefixed = [cell(f"variables-{name}", "none", 0.5) for name in ("rope", "prope")]
    for row in [row for rows in prefixed for row in rows]:
        row["encoding"] = "rope" if row["group"].endswith("-rope") else "prope"
    names = answers.collect(gathered(*prefixed, cell("fox", "none", 0.5))).names
    assert list(names.values()) == ["rope", "prope", "fox"]
    data = gathered(cell("rope, sink", "none", 0.5), cell("rope-a", "none", 0.7))
    data.points.loc[data.points.group == "rope, sink", "encoding"] = "rope"
    sink, plain = data.runs
    labelled = replace(sink, config=replace(sink.config, label="rope, sink"))
    names = answers.collect(replace(data, runs=[labelled, plain])).names
    assert set(names.values()) == {"rope, sink", "rope"}


def test_text_stands_beside_the_answers(data):
    """Of other runs only, unless the answering ones read text too."""
    results = answers.collect(data)
    (line,) = answers.text(data, results, own=False)
    assert (line.name, line.y) == ("alibi", [2.0, 2.0]) and "alibi" not in results.names
    (line,) = answers.text(gathered(of_text("rope-a", 1.5)), results, own=True)
    assert (line.name, line.x) == ("rope-a", [L, LONG])
    rows = []
    for method, bits in (("none", 3.0), ("yarn:8", 2.5), ("window", 2.0)):
        rows += [row | {"method": method, "encoding": "rope"} for row in of_text("mix-rope", bits)]
    lines = answers.text(gathered(rows), results, True, {("rope", "yarn:8")})
    assert [line.y[-1] for line in lines] == [2.0, 2.5, 3.0]
    assert [line.look["linestyle"] for line in lines][1:] == ["--", "-"]
    (plain,) = answers.text(gathered(rows), results, True, {("fire", "logn")})
    assert plain.y[-1] == 3.0


def test_the_task_is_admitted_by_its_oracle(data):
    words = answers.admitted(answers.collect(data))
    assert "The oracle rope, " in words and "94% of the way" in words and "is admitted" in words
    poor = gathered(cell("rope-a", "none", 0.2), cell("rope-b", "none", 0.3, trained=LONG))
    assert "not admitted" in answers.admitted(answers.collect(poor))
    near = gathered(cell("rope-a", "none", 0.5, length=L), cell("fire-a", "none", 0.7, length=L))
    results = answers.collect(near)
    assert not results.oracles
    assert answers.admitted(results) == "No run was evaluated beyond the trained length."


def test_lines_are_relative_to_the_ceiling():
    """A window of L holds a quarter of the answers."""
    near = cell("rope-a", "none", 0.25, length=L)[0] | {"ceiling": 0.25}
    data = gathered([near], cell("rope-a", "none", 0.4))
    line, ceiling, *_ = answers.lines(data, answers.collect(data))
    assert (list(line.x), list(line.y)) == ([L, LONG], [1.0, 0.4])
    assert (list(ceiling.x), list(ceiling.y)) == ([L, LONG], [1.0, 1.0])
    assert answers.collect(data).best == {("rope-a", "none"): 0.4}  # at the longest length


def test_the_picture_has_the_map_above_text_and_eight_lines_at_most():
    names = ["rope", "fire", "alibi", "t5", "nope", "fox", "xpos", "sandwich", "ssmax", "hybrid"]
    cells = [cell(name, "none", 0.9 - i / 20) for i, name in enumerate(names)]
    figure = answers.pictures(gathered(*cells, of_text("learned", 2.0)))["answers"]
    figure.canvas.draw()
    text, lines, map_ = figure.axes[:3]
    assert text.get_ylabel() == "bits per byte of text"
    assert lines.get_ylabel() == "accuracy relative to the ceiling"
    assert map_.get_window_extent().y0 > lines.get_window_extent().y1
    legend = lines.get_legend()
    title = "8 of 10 methods, from best to worst; the map has all"
    assert legend.get_title().get_text() == title
    shown = {text.get_text() for text in legend.get_texts()}
    drawn = [name for name in names if name in shown]
    assert len(drawn) == 8 and (drawn[0], drawn[-1]) == (names[0], names[-1])


def test_a_report_says_first_who_finds_the_answer(data):
    assert page._answered(data, {}) == (
        "Retrieval accuracy up to 512 tokens back: rope + yarn:8 0.90, rope 0.50 and a window of "
        "the last 64 tokens at most 0.30."
    )


def order_of(group, method, found, order, held=0.9, seed=0, trained=64):
    """Rows beyond L, and at L, where 0.95 of pairs and 0.8 of hard ones are answered right."""
    same = (group, method, seed, trained)
    return [
        ("found", "beyond", *same, 512, found, None, None, None),
        ("found", "65-128", *same, 512, 1.0, None, None, None),
        ("last_of_two", "beyond", *same, 512, None, order, held, 0.5),
        ("last_of_two", "within", *same, 64, None, None, None, 0.95),
        ("last_of_two", "hard", *same, 64, None, None, None, 0.8),
    ]


@pytest.fixture
def questions():
    rows = [
        *(row for seed in range(3) for row in order_of("rope", "none", 0.5, None, 0.1, seed)),
        *(row for s in range(3) for row in order_of("rope", "yarn:8", 0.9, 0.6 + s / 10, 0.9, s)),
        *order_of("nope", "none", 1.0, 0.8),
        *order_of("rope", "window", 0.0, None, 0.01),
    ]
    names = "protocol,part,group,method,seed,trained,length,found,order,held,accuracy".split(",")
    points = pd.DataFrame(rows, columns=names).astype({"order": float, "accuracy": float})
    points["bpb"] = np.nan
    runs = [SimpleNamespace(group=name, encoding=name) for name in points.group.unique()]
    return replace(gathered(of_text("alibi", 2.0)), points=points, runs=runs)


def test_methods_are_listed_by_order_beyond_L_with_what_they_find(questions):
    ordered, longest = answers.ordered(questions)
    assert longest == 512
    names = ["nope", "rope + yarn:8", "rope", "rope + window"]
    assert [row.name for row in ordered] == names
    nope, yarn, rope, _ = ordered
    assert list(yarn.order) == pytest.approx([0.6, 0.7, 0.8]) and answers.mean(yarn.found) == 0.9
    assert list(rope.order) == [] and answers.mean(rope.held) == pytest.approx(0.1)
    assert answers.mean(nope.near) == 0.95 and answers.mean(nope.hard) == 0.8
    only = questions.points[questions.points.protocol == "found"]
    assert answers.ordered(replace(questions, points=only)) is None


def test_the_picture_has_what_is_found_and_its_order_with_intervals_over_seeds(questions):
    (axes,) = answers.picture_of_order(*answers.ordered(questions)).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["nope", "rope + yarn:8", "rope"]  # the window finds nothing
    marks = {(int(one.get_ydata()[0]), round(one.get_xdata()[0], 6)) for one in axes.lines[1:]}
    assert marks == {(0, 1.0), (0, 0.8), (1, 0.9), (1, 0.7), (2, 0.5)}
    low, high = axes.collections[-2].get_paths()[0].vertices[:, 0]
    assert (low, high) == (pytest.approx(0.7 - 0.2484, abs=1e-3), pytest.approx(0.9484, abs=1e-3))


def test_a_page_says_what_found_and_order_are(questions):
    section = sections.found_and_order(questions)
    (block,) = section.blocks
    assert block.table.rows[2] == ["rope", "\N{EN DASH}", "0.10", "0.50", "0.95", "0.80"]
    assert "0.5 without order" in section.sentence
    said = table.table(questions)
    assert "512 tokens, means over seeds" in said and "hard cell at L" in said
