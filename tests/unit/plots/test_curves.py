"""Pictures of curves, the looks in them, and what they are as an element of a page."""

import re

import numpy as np
import pytest
from evaluated import make_run

from posenc_jax.display import Line
from posenc_jax.evaluation import records
from posenc_jax.plots import curves, style


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """An evaluated run with two scales of an extension."""
    folder = tmp_path_factory.mktemp("runs") / "rope-s0"
    every = records.read_cells(make_run(folder, "rope", 0, scales=(2.0, 4.0)) / "eval")
    return [c for c in every if c.facts["protocol"] in ("same_token", "nonoverlap", "position")]


def test_pictures_are_of_one_run_of_several_and_of_its_checkpoints(cells, tmp_path):
    made = curves.draw(cells, tmp_path / "one")
    every = ["same_token", "nonoverlap", "position"]
    assert sorted(path.stem for path in made) == sorted(every)
    other = [cell._replace(facts=cell.facts | {"run": "other"}) for cell in cells]
    made += curves.draw(cells + other, tmp_path / "two")
    assert all(path.stat().st_size > 10_000 for path in made)
    later = [cell._replace(facts=cell.facts | {"step": 20}) for cell in cells]
    made = curves.draw(cells + later, tmp_path / "three")
    assert "budget" in {path.stem for path in made}
    axes = curves.by_step(records.rows(cells + later)).axes[0]
    lines = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    names = ["length 16", "length 32", "length 64 (beyond L)"]
    assert lines == dict.fromkeys(names, [10, 20])


def test_a_figure_on_a_page_is_the_same_text_with_ids_of_its_own():
    def drawn(name):
        look = style.look_of_method("none")
        seeds = [[1.0, 3.0], [2.0, 4.0]]
        line = Line("rope", [16, 32], [2.0, 3.0], look, ([1, 2], [3, 4]), seeds)
        figure = curves.chart([line], y="bits", lengths=[16, 32], trained=[32], below=True)
        return style.svg(figure, name, "a <title>")

    text = drawn("a")
    assert text == drawn("a") and "<title>" not in text
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(set(ids)) == len(ids) and all(name.startswith("a-") for name in ids)
    assert not set(ids) & set(re.findall(r' id="([^"]*)"', drawn("b")))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', text)) <= set(ids)
    assert ">rope</text>" in text


@pytest.mark.parametrize("count", [curves.BANDS, curves.BANDS + 1])
def test_every_interval_is_drawn_as_a_band_or_of_many_lines_as_a_bar(count):
    band = ([1.0, 2.0], [3.0, 4.0])
    lines = [Line(f"line {n}", [16, 32], [2.0, 3.0], {}, band) for n in range(count)]
    drawn = [type(one).__name__ for one in curves.chart(lines, y="bits").axes[0].collections]
    bands = {True: "FillBetweenPolyCollection", False: "LineCollection"}
    assert drawn == [bands[count <= curves.BANDS]] * count


def test_a_mean_over_one_document_has_no_interval():
    row = {"nll": 2.0, "bpb": 1.0, "ppl": np.exp(2.0), "nll_low": 1.8, "nll_high": 2.2}
    rows = [row, row | {"nll_low": None, "nll_high": None}]
    for value, low in (("nll", 1.8), ("bpb", 0.9), ("ppl", np.exp(1.8))):
        found = curves._interval(rows, value)
        assert found[0][0] == pytest.approx(low) and np.isnan([end[1] for end in found]).all()


def test_the_nulls_of_several_runs_have_one_entry_in_the_legend(cells):
    other = [cell._replace(facts=cell.facts | {"run": "other"}) for cell in cells]
    axes = curves.against_length(records.rows(cells + other), "nonoverlap").axes[0]
    labels = [line.get_label() for line in axes.lines]
    assert (labels.count(curves.NULL.name), labels.count("_")) == (1, 1)


def test_every_picture_has_a_caption_that_says_what_its_bands_are(cells, tmp_path):
    made = curves.draw(cells, tmp_path)
    written = (tmp_path / "captions.md").read_text().strip().split("\n\n")
    assert [words.split("**")[1] for words in written] == [path.name for path in made]
    assert all("over 12 documents, of each line alone and unpaired" in one for one in written)
    assert "targets in" in written[0]
