"""The picture of answers: what is drawn of runs whose accuracies are known."""

import numpy as np
import pytest
from answering import LONG, PARTS, L, cell, gathered, of_text

from posenc_jax.report import answers, page

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


def test_a_fading_method_is_drawn_beside_the_extension_that_restores_it(data):
    drawn = [line.name for line in answers.lines(data, answers.collect(data))]
    # FIRE gains less by log-n than is worth a line; of equals the plainer method has it.
    assert drawn[:3] == ["rope + yarn:8", "fire", "rope"]
    assert drawn[3:] == ["ceiling: all that a window holds", FLOOR, "rope, oracle"]


def test_a_picture_of_many_lines_draws_a_sample_and_says_so(data, monkeypatch):
    few = [line.name for line in answers.lines(data, answers.collect(data), most=2)]
    assert few == [
        "rope + yarn:8",
        "rope",  # which it mends
        "ceiling: all that a window holds",
        FLOOR,
        "rope, oracle",
    ]
    monkeypatch.setattr(answers, "MOST_LINES", 2)
    legends = [axes.get_legend() for axes in answers.picture(data).axes]
    (title,) = [legend.get_title().get_text() for legend in legends if legend is not None]
    assert title == "2 of 3 methods, from best to worst; the map has all"


def test_the_map_has_the_oracle_first_the_floor_last_and_nothing_twice(data):
    values, names, parts = answers.grid(data, answers.collect(data))
    best = ["rope + yarn:8", "fire + logn", "fire", "rope + ntk:8", "rope"]
    assert names == ["rope, oracle", *best, "windows of L (mean)"]
    assert parts == PARTS and values[1].tolist() == [0.8, 0.9]


def test_the_brief_map_has_the_best_extension_of_each_where_it_gains(data):
    _, names, _ = answers.grid(data, answers.collect(data), brief=True)
    assert names == [
        "rope, oracle",
        "rope + yarn:8",
        "fire + logn",
        "fire",
        "rope",
        "windows of L (mean)",
    ]
    worse = gathered(
        cell("rope-a", "none", 0.9, by_gap=(0.9, 0.9)),
        cell("rope-a", "ntk:8", 0.8, by_gap=(0.9, 0.8)),
    )
    assert answers.grid(worse, answers.collect(worse), brief=True)[1] == ["rope"]


def test_methods_equal_to_the_window_share_its_row():
    data = gathered(
        cell("rope-a", "none", 0.25, by_gap=(0.9, 0.2)),
        cell("rope-a", "streaming", 0.3, by_gap=(0.7, 0.25)),
        cell("rope-a", "logn", 0.35, by_gap=(1.0, 0.3)),
        cell("rope-a", "window", 0.3, by_gap=(1.0, 0.2)),
    )
    values, names, _ = answers.grid(data, answers.collect(data))
    assert names == ["rope + logn", "rope", "windows of L (mean), streaming"]
    assert values[-1].tolist() == [1.0, 0.2]


def test_runs_of_one_encoding_at_two_lengths_have_distinct_names():
    data = gathered(
        cell("rope-a", "none", 0.5),
        cell("rope-b", "none", 0.7, trained=2 * L),
        cell("rope-c", "none", 0.9, trained=LONG),
        cell("rope-d", "none", 0.9, trained=2 * LONG),
        cell("fire-a", "none", 0.8),
    )
    names = answers.display_names(data, answers.collect(data))
    assert names["fire-a"] == "fire" and len(set(names.values())) == 5


def test_a_common_prefix_of_names_is_left_out():
    groups = {"variables-rope": "rope", "variables-prope": "rope", "fox": "fox"}
    data = [cell(group, "none", 0.5) for group in groups]
    for rows, encoding in zip(data, groups.values(), strict=True):
        for row in rows:
            row["encoding"] = encoding
    names = answers.collect(gathered(*data)).names
    assert list(names.values()) == ["rope", "prope", "fox"]


def test_a_cell_of_few_answers_shows_no_share():
    rows = cell("rope-a", "none", 0.5, by_gap=(0.25, 0.4))
    few, enough = rows[1], rows[2]
    few["answers"], enough["answers"] = answers.FEWEST_ANSWERS - 1, answers.FEWEST_ANSWERS
    values, _, _ = answers.grid(gathered(rows), answers.collect(gathered(rows)))
    assert np.isnan(values[0, 0]) and values[0, 1] == 0.4


def test_a_method_that_changes_nothing_has_no_row():
    data = gathered(
        cell("randomized", "none", 0.9, by_gap=(0.7, 0.6)),
        cell("randomized", "yarn:1", 0.9, by_gap=(0.7, 0.6)),
    )
    assert answers.grid(data, answers.collect(data))[1] == ["randomized"]


def test_runs_of_text_stand_beside_the_answers_and_are_none(data):
    found = answers.collect(data)
    assert [(line.name, line.y) for line in answers.text(data, found, own=False)] == [
        ("alibi", [2.0, 2.0])
    ]
    assert "alibi" not in found.names


def test_one_model_of_both_shows_its_text(data):
    text = gathered(of_text("rope-a", 1.5))
    (line,) = answers.text(text, answers.collect(data), own=True)
    assert (line.name, line.x) == ("rope-a", [L, LONG])


def test_restoring_extension_and_window_are_in_the_text_panel(data):
    """The same weights on another text, where the ranking turns round."""
    text = [*of_text("mix-rope", 3.0), *of_text("mix-rope", 2.5), *of_text("mix-rope", 2.0)]
    for row, method in zip(
        text, ["none", "none", "yarn:8", "yarn:8", "window", "window"], strict=True
    ):
        row.update(method=method, encoding="rope")
    read = gathered(text)
    found = answers.collect(data)
    lines = answers.text(read, found, True, {("rope", "yarn:8")})
    assert [line.y[-1] for line in lines] == [2.0, 2.5, 3.0]
    assert [line.look["linestyle"] for line in lines][1:] == ["--", "-"]
    (plain,) = answers.text(read, found, True, {("fire", "logn")})
    assert plain.y[-1] == 3.0


def test_the_task_is_admitted_by_its_oracle(data):
    found = answers.collect(data)
    assert "94% of the way" in answers.admitted(data, found)
    assert "is admitted" in answers.admitted(data, found)
    poor = gathered(cell("rope-a", "none", 0.2), cell("rope-b", "none", 0.3, trained=LONG))
    assert "not admitted" in answers.admitted(poor, answers.collect(poor))


def test_runs_read_no_further_than_L_are_no_oracles():
    data = gathered(cell("rope-a", "none", 0.5, length=L), cell("fire-a", "none", 0.7, length=L))
    found = answers.collect(data)
    assert not answers.oracles(data, found)
    assert answers.admitted(data, found) == "No run was evaluated beyond the trained length."


def test_the_picture_has_a_panel_of_text_where_there_is_text(data):
    axes = [axis.get_ylabel() for axis in answers.picture(data).axes]
    assert axes[:2] == ["bits per byte of text", "accuracy relative to the ceiling"]


def test_the_lines_are_relative_to_the_ceiling_so_that_what_fades_falls():
    """A window of L holds a quarter of the answers, and whoever has them all is level at 1."""
    rows = []
    for length, ceiling, accuracy in ((L, 0.25, 0.25), (LONG, 1.0, 0.4)):
        rows += [
            row | {"ceiling": ceiling}
            for row in cell("rope-a", "none", accuracy, length=length)
            if length == LONG or row["protocol"] == "answers"
        ]
    data = gathered(rows)
    drawn = answers.lines(data, answers.collect(data))
    assert [(list(line.x), list(line.y)) for line in drawn[:2]] == [
        ([L, LONG], [1.0, 0.4]),
        ([L, LONG], [1.0, 1.0]),
    ]


def test_the_map_comes_first_and_at_most_eight_methods_have_lines():
    names = ["rope", "fire", "alibi", "t5", "nope", "fox", "xpos", "sandwich", "ssmax", "hybrid"]
    data = gathered(*(cell(name, "none", 0.9 - i / 20) for i, name in enumerate(names)))
    figure = answers.picture(data)
    figure.canvas.draw()
    lines, map_ = figure.axes[:2]
    assert map_.get_window_extent().y0 > lines.get_window_extent().y1
    legend = [text.get_text() for text in lines.get_legend().get_texts()]
    drawn = [name for name in names if name in legend]
    assert len(drawn) == 8 and (drawn[0], drawn[-1]) == (names[0], names[-1])


def test_a_label_is_what_the_picture_calls_a_group():
    """Two groups have one encoding; the group without a label keeps the encoding's name."""
    data = gathered(cell("rope, sink", "none", 0.5), cell("rope-a", "none", 0.7))
    for row, name in zip(data.runs, ("rope, sink", ""), strict=True):
        row["label"] = name
    data.points.loc[data.points.group == "rope, sink", "encoding"] = "rope"
    assert set(answers.collect(data).names.values()) == {"rope, sink", "rope"}


def test_a_report_says_first_who_finds_the_answer(data):
    found = page._answered(data)
    assert found == (
        "Retrieval accuracy up to 512 tokens back: rope + yarn:8 0.90, rope 0.50 and a window of "
        "the last 64 tokens at most 0.30."
    )
