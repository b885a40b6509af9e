"""The first screen: what is drawn, claimed and ranked, of runs whose numbers are known."""

from itertools import combinations

import numpy as np
import pytest
from answering import LONG, L, cell, gathered, of_text
from evaluated import LENGTHS, make_run
from matplotlib.text import Text

from posenc_jax.evaluation.statistics import Units
from posenc_jax.plots import curves, style
from posenc_jax.report import overview
from posenc_jax.report.ranking import Rank, Rankings, rankings
from posenc_jax.report.runs import read_runs

UNRANKED = Rankings({}, {}, [])


def rank(group, method, wrong, verdict="behind", **fields):
    facts = dict(seeds=[wrong], loss=wrong, interval=None, behind=0.25, by_documents=(0.1, 0.4))
    facts |= dict(by_seeds=(0.2, 0.3), units=Units(12, None), shared=3, alone=0, p=0, comparisons=6)
    return Rank(group=group, method=method, verdict=verdict, **(facts | fields))


def first(*cells, ranks=UNRANKED, text=()):
    data, of_text = gathered(*cells), gathered(*(text or cells))
    return overview.first(data, ranks, of_text, UNRANKED)


RUNS = [
    cell("rope-a", "none", 0.5),
    cell("rope-a", "yarn:8", 0.9),
    cell("rope-a", "ntk:8", 0.7),
    cell("rope-a", "window", 0.3),
    cell("fire-a", "none", 0.8),
    cell("fire-a", "window", 0.2),
    cell("rope-b", "none", 0.95, trained=LONG),
    of_text("rope", 2.0),
    of_text("alibi", 3.0),
]


def test_a_method_has_one_look_in_both_panels_and_an_extension_is_dashed_in_its_colour():
    loss, retrieval = first(*RUNS)
    assert list(loss.lines) == [("rope", "none"), ("alibi", "none")]
    plain, yarn = (retrieval.lines["rope", method] for method in ("none", "yarn:8"))
    assert (plain.name, yarn.name) == ("RoPE", "RoPE with YaRN")
    assert loss.lines["rope", "none"].look == plain.look
    assert yarn.look["color"] == plain.look["color"] == style.ENCODINGS["rope"][0]
    assert (plain.look["linestyle"], yarn.look["linestyle"]) == ("-", "--")
    assert retrieval.lines["fire", "none"].look["color"] != plain.look["color"]


def test_baselines_are_grey_and_the_window_is_the_best_one():
    _, retrieval = first(*RUNS)
    greys = {line.name: line.y[-1] for line in retrieval.baselines}
    assert greys == {"RoPE, window of L": 0.3, f"trained at {LONG}": 0.95}
    assert all(style.look_of("rope")[0] != line.look["color"] for line in retrieval.baselines)
    assert retrieval.trained == [L]
    assert all(line.y[-1] != 0.95 for line in retrieval.lines.values())


def test_accuracy_is_relative_to_the_ceiling():
    """A window of L holds a quarter of the answers."""
    near = cell("rope-a", "none", 0.25, length=L)[0] | {"ceiling": 0.25}
    (panel,) = first([near], cell("rope-a", "none", 0.4))
    line = panel.lines["rope", "none"]
    assert (list(line.x), list(line.y)) == ([L, LONG], [1.0, 0.4])


def test_text_comes_from_other_runs_if_given_and_answers_are_no_text():
    answered = [row | {"accuracy": 0.5} for row in of_text("rope-a", 1.5)]
    (panel,) = first(*RUNS[:-2], answered)
    assert panel.is_retrieval
    loss, _ = first(*RUNS, text=[of_text("nope", 1.5)])
    assert list(loss.lines) == [("nope", "none")]


def test_groups_of_one_encoding_have_colours_of_their_own():
    (panel,) = first(*(cell(f"rope-{name}", "none", 0.5) for name in "abc"))
    colours = {line.look["color"] for line in panel.lines.values()}
    assert len(colours) == 3 and style.ENCODINGS["rope"][0] in colours


def test_ten_lines_at_most_are_drawn_first_from_best_to_worst():
    names = ["rope", "fire", "alibi", "t5", "nope", "fox", "xpos", "sandwich", "ssmax", "hybrid"]
    cells = [cell(name, "none", 0.9 - i / 20) for i, name in enumerate(names)]
    cells += [cell(name, "logn", 0.1) for name in names] + [cell("t5", "clamp", 0.99)]
    shown = first(*cells, cell("fire", "window", 0.2))
    choices = overview.choices(shown)
    assert list(choices) == ["few", "all", "plain"]
    assert [len(methods) for _, methods in choices.values()] == [9, 21, 10]
    label, few = choices["few"]
    assert label == "9 of 21, from best to worst"
    assert few[:2] == [("t5", "clamp"), ("t5", "none")] and few[-1] == ("hybrid", "none")
    assert not any(method == "logn" for _, method in few)
    (axes,) = overview.picture(shown).axes
    assert len(axes.texts) == 10 + 1  # and L
    (panel,) = few_cells = first(*cells[:3])
    assert list(overview.choices(few_cells)) == ["all"] and len(panel.lines) == 3


@pytest.mark.parametrize("choice", ["few", "all"])
def test_names_at_the_ends_of_lines_do_not_overlap(choice):
    cells = []
    for number, name in enumerate(style.ENCODINGS):
        for method, sign in (("none", 1), ("logn", -1)):
            accuracy = 0.9 + sign * number / 1000
            cells += [cell(name, method, accuracy, length=length) for length in (L, LONG)]
    (panel,) = shown = first(*cells)
    view = overview.view(panel, overview.choices(shown)[choice][1])
    figure = curves.named(view)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [text for text in axes.texts if not text.get_text().startswith("L =")]
    boxes = [Text.get_window_extent(name) for name in names]  # without the line to it
    assert len(boxes) == len(view.lines) and max(box.x1 for box in boxes) <= figure.bbox.x1
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    by_height = sorted(zip(boxes, names, strict=True), key=lambda pair: pair[0].y0)
    values = [float(name.get_text()[:4]) for _, name in by_height]
    assert values == sorted(values)


def test_a_line_that_leaves_the_panel_is_named_at_its_top():
    (panel,) = first(
        *(of_text(name, bits) for name, bits in (("alibi", 2.0), ("t5", 2.1))),
        of_text("fire", 2.2),
        of_text("rope", 9.0),
    )
    figure = overview.picture([panel])
    figure.draw_without_rendering()
    words = {text.get_text(): text.xyann[1] for text in figure.axes[0].texts}
    assert words["9.00 RoPE ↑"] == pytest.approx(1) and words["2.00 ALiBi"] < 0.5


def test_intervals_are_paired_with_the_best_over_the_documents_of_one_seed(tmp_path):
    make_run(tmp_path / "rope-s0", "rope", 0)
    data = read_runs([tmp_path])
    ranks = rankings(data.runs)
    (panel,) = overview.first(data, ranks, data, ranks)
    best, other = panel.lines["rope", "none"], panel.lines["rope", "pi:2"]
    assert np.isnan(best.band).all()
    (_, behind) = ranks.extended["same_token"][LENGTHS[-1]]
    assert behind.by_seeds is None and behind.by_documents[0] > 0
    ends = [best.y[-1] + end for end in behind.by_documents]
    assert [end[-1] for end in other.band] == pytest.approx(ends)
    found, condition = overview.headline([panel])
    assert found.startswith("RoPE has the lowest loss at 64 tokens, 2 times the trained length: ")
    assert condition.endswith("One seed each: another may change the order.")


def test_the_page_opens_with_one_number_and_its_condition():
    best = rank("rope-a", "yarn:8", 0.1, "best")
    entries = [best, rank("fire-a", "none", 0.2, "tie"), rank("rope-a", "none", 0.5)]
    shown = first(*RUNS, ranks=Rankings({"answers": {LONG: entries}}, {}, []))
    found, condition = overview.headline(shown)
    where = "at 512 tokens, 8 times the trained length."
    assert found == f"RoPE with YaRN answers 0.90 of the questions {where}"
    assert condition == (
        "A guess is right in 0.17 and RoPE in a window of the last 64 tokens in 0.30. Tied with "
        "it: FIRE. "
        "One seed each: another may change the order."
    )
    assert overview.claim(shown[1]) == "RoPE with YaRN answers most at 512 tokens, tied with FIRE"
    assert overview.headline(first(*RUNS)) == ("", "")


def test_the_first_sentence_has_the_length_of_the_best_run_and_the_window_of_the_picture():
    """Runs of two lengths, whose windows hold 80% of the answers."""
    cells = [
        cell("rope-a", "none", 0.60, trained=2 * L),
        cell("rope-a", "window", 0.28, trained=2 * L),
        cell("rope-b", "none", 0.50),
        cell("rope-b", "window", 0.40),
    ]
    cells = [[row | {"ceiling": 0.8} for row in rows] for rows in cells]
    tables = {"answers": {LONG: [rank("rope-a", "none", 0.4, "best")]}}
    found, condition = overview.headline(shown := first(*cells, ranks=Rankings(tables, {}, [])))
    assert [line.name for line in shown[0].baselines] == ["rope-b, window of L"]
    assert "answers 0.60 of the questions at 512 tokens, 4 times the trained length." in found
    assert "rope-b in a window of the last 64 tokens in 0.40." in condition


def test_a_window_that_wins_comes_first():
    """In the sentence and above the picture; of answers too."""
    cells = [
        of_text("rope-a", 2.0),
        of_text("alibi-a", 1.9),
        [row | {"method": "window"} for row in of_text("rope-a", 1.5)],
    ]
    (panel,) = first(*cells)
    panel = panel._replace(ranks=[rank("alibi-a", "none", 1.9, "best")])
    found, condition = overview.headline([panel])
    assert found.startswith("RoPE in a window of the last 64 tokens has the lowest loss at 512 ")
    assert found.endswith(": 1.50 bits per byte.") and condition.startswith("ALiBi has 1.90.")
    claim = "RoPE in a window of L has the lowest loss at 512 tokens, then ALiBi"
    assert overview.claim(panel) == claim
    assert panel.baselines[0].name == "RoPE, window of L"
    cells = [cell("rope-a", "none", 0.3), cell("rope-a", "window", 0.4)]
    answers = {"answers": {LONG: [rank("rope-a", "none", 0.7, "best")]}}
    found, condition = overview.headline(first(*cells, ranks=Rankings(answers, {}, [])))
    assert found.startswith("RoPE in a window of the last 64 tokens answers 0.40 of the questions")
    assert " and RoPE in 0.30." in condition


def test_a_verdict_is_in_words_and_has_three_decimals_where_its_interval_is_narrow():
    fine = (0.2501, 0.2504)
    for expected, entry in {
        "best": rank("a", "none", 0.1, "best"),
        "ties with the best, 0.25 behind": rank("a", "none", 0.1, "tie"),
        "0.25 behind": rank("a", "none", 0.1),
        "0.250 behind": rank("a", "none", 0.1, by_seeds=fine),
        "0.25 behind, open: 1 seed": rank("a", "none", 0.1, "open", by_seeds=None, shared=1),
        "0.25 behind, open: 9 documents": rank("a", "none", 0.1, "open", units=Units(9, None)),
        "0.25 behind, open: 3 seeds, 6 comparisons": rank("a", "none", 0.1, "open"),
    }.items():
        assert overview.in_words(entry) == expected


@pytest.mark.parametrize("places", [[0.5] * 4, [0.0, 0.01, 0.9, 0.91], [0.99, 1.0, 1.0], [0.3]])
def test_spaced_places_keep_their_order_and_stay_inside(places):
    moved = style.spaced(places, 0.1)
    assert min(np.diff(sorted(moved)), default=1) > 0.1 - 1e-9
    assert min(moved) >= 0 and max(moved) <= 1 + 1e-9
    assert list(np.argsort(moved, kind="stable")) == list(np.argsort(places, kind="stable"))
    assert style.spaced([0.2, 0.8], 0.1) == pytest.approx([0.2, 0.8])


def test_names_are_those_of_papers():
    assert [style.written(name) for name in ("kerple_log", "dynamic_ntk", "rope, oracle")] == [
        "KERPLE log",
        "dynamic NTK",
        "RoPE, oracle",
    ]
    assert style.written("my_own run") == "my_own run"
