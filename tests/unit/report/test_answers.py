"""Answers in a report: what is drawn of runs whose accuracies are known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from answering import LONG, PARTS, L, cell, gathered, of_text

from posenc_jax.report import answers, sections, tables


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


def grid(*cells):
    return answers.grid(answers.collect(gathered(*cells)))


def test_the_map_has_the_oracle_first_the_floor_last_and_nothing_twice(data):
    values, names, parts = answers.grid(answers.collect(data))
    best = ["RoPE with YaRN by 8", "FIRE with log-n", "FIRE", "RoPE with NTK by 8", "RoPE"]
    assert names == ["RoPE, oracle", *best, "windows of L (mean)"]
    assert parts == PARTS and values[1].tolist() == [0.8, 0.9]


def test_the_map_leaves_out_methods_that_change_nothing():
    plain = cell("rope-a", "none", 0.9, by_gap=(0.9, 0.9))
    assert grid(plain, cell("rope-a", "yarn:1", 0.9, by_gap=(0.9, 0.9)))[1] == ["RoPE"]


def test_the_map_claims_no_oracle_and_no_baseline_as_the_best():
    methods = {"none": 0.25, "streaming": 0.35, "yarn:8": 0.32, "window": 0.33}
    cells = [cell("rope-a", *each, by_gap=(1.0, each[1])) for each in methods.items()]
    results = answers.collect(gathered(*cells, cell("rope-b", "none", 0.9, trained=LONG)))
    assert answers.grid(results)[1][:2] == ["RoPE, oracle", "RoPE, streaming"]
    assert answers.claim(results).startswith("RoPE with YaRN by 8 answers most at 512 tokens")


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
    points = points.assign(bpb=np.nan, encoding=points.group)
    unlabelled = SimpleNamespace(label="")
    runs = [SimpleNamespace(group=name, config=unlabelled) for name in points.group.unique()]
    return replace(gathered(of_text("alibi", 2.0)), points=points, runs=runs)


def test_methods_are_listed_by_order_beyond_L_with_what_they_find(questions):
    ordered, longest = answers.ordered(questions)
    assert longest == 512
    names = ["NoPE", "RoPE with YaRN by 8", "RoPE", "RoPE, window of L"]
    assert [row.name for row in ordered] == names
    nope, yarn, rope, _ = ordered
    assert list(yarn.order) == pytest.approx([0.6, 0.7, 0.8]) and answers.mean(yarn.found) == 0.9
    assert list(rope.order) == [] and answers.mean(rope.held) == pytest.approx(0.1)
    assert answers.mean(nope.near) == 0.95 and answers.mean(nope.hard) == 0.8
    only = questions.points[questions.points.protocol == "found"]
    assert answers.ordered(replace(questions, points=only)) is None


def test_the_picture_has_what_is_found_and_its_order_with_intervals_over_seeds(questions):
    figure = answers.picture_of_order(*answers.ordered(questions))
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["NoPE", "RoPE with YaRN by 8", "RoPE"]  # the window finds nothing
    marks = {(int(one.get_ydata()[0]), round(one.get_xdata()[0], 6)) for one in axes.lines[1:]}
    assert marks == {(0, 1.0), (0, 0.8), (1, 0.9), (1, 0.7), (2, 0.5)}
    low, high = axes.collections[-2].get_paths()[0].vertices[:, 0]
    assert (low, high) == (pytest.approx(0.7 - 0.2484, abs=1e-3), pytest.approx(0.9484, abs=1e-3))
    assert "NoPE keeps order best" in figure.get_suptitle()
    unordered = [row for row in answers.ordered(questions)[0] if not len(row.order)]
    assert "best" not in answers.picture_of_order(unordered, LONG).get_suptitle()


def test_a_page_says_what_found_and_order_are(questions):
    section = sections.found_and_order(questions)
    (block,) = section.blocks
    assert block.table.rows[2] == ["RoPE", "\N{EN DASH}", "0.10", "0.50", "0.95", "0.80"]
    assert "0.5 without order" in section.sentence
    said = tables.summary(questions)
    assert "512 tokens, means over seeds" in said and "hard cell at L" in said
