"""The pictures of a run and of a report, and figures of a frame."""

import numpy as np
import pandas as pd
import pytest
from evaluated import make_run

from posenc_jax import report
from posenc_jax.evaluation import protocols, records
from posenc_jax.plots import style
from posenc_jax.report import overview, pictures
from posenc_jax.report.ranking import rankings
from posenc_jax.report.runs import read_runs

KINDS = ("same_token", "nonoverlap", "position")
BASELINES = {"window": {"window": 32}, "streaming": {"extension": "streaming"}}


def drawn(data, folder):
    return {path.stem for path in pictures.draw(data, rankings(data.runs), folder)}


@pytest.fixture
def run(tmp_path):
    """An evaluated run with baselines, two scales of one extension, and a cell that is nan."""
    folder = make_run(tmp_path / "rope-s0", "rope", 0, scales=(2.0, 4.0))
    every = records.read_cells(folder / "eval")
    cells = [cell for cell in every if cell.facts["protocol"] in KINDS]
    cells += [
        cell._replace(facts=cell.facts | facts, nats=cell.nats + 1)
        for facts in BASELINES.values()
        for cell in cells
        if cell.facts["extension"] == "none"
    ]
    cells += protocols.find("same_token").derived(cells)
    cells[1].nats[0] = np.nan
    records.write(folder / "eval", cells)
    return folder


def test_the_pictures_of_a_run_are_those_of_a_report_over_it(run, tmp_path):
    data = read_runs([run])
    assert drawn(data, tmp_path / "one") == set(KINDS)
    later = [
        cell._replace(facts=cell.facts | {"step": 20}) for cell in records.read_cells(run / "eval")
    ]
    records.write(run / "eval", later)
    assert drawn(read_runs([run]), tmp_path / "steps") == {*KINDS, "budget"}
    make_run(run.with_name("alibi-s0"), "alibi", 0)
    both = drawn(read_runs([run.parent]), tmp_path / "two")
    assert set(KINDS) <= both and "budget" not in both


def test_a_picture_of_same_token_calls_its_null_fresh(run):
    data = read_runs([run])
    for protocol, null in (("same_token", "fresh row of L"), ("nonoverlap", overview.NULL)):
        (panel,) = overview.panels([(protocol, data, rankings(data.runs))])
        names = [line.name for line in panel.baselines]
        assert names == ["window of L", "streaming", null]
        (axes,) = overview.picture([panel]).axes
        assert [line.get_color() for line in axes.lines].count("0.5") == 3
    looks = [str(line.look) for line in panel.lines.values()]
    assert len(set(looks)) == len(looks) == 3  # none, and two scales of one extension


def test_where_the_tokenizer_loses_text_losses_are_in_nats(run):
    lossy = [c._replace(bytes=0 * c.bytes) for c in records.read_cells(run / "eval")]
    records.write(run / "eval", lossy)
    (panel,) = overview.panels([("same_token", data := read_runs([run]), rankings(data.runs))])
    assert panel.value == "nll" and panel.lines["rope", "none"].y[-1] > 1
    assert overview.view(panel, panel.lines).y == "nats per token"


def test_every_picture_has_a_caption_that_says_what_its_bands_are(run, tmp_path):
    made = pictures.draw(
        data := read_runs([run]), rankings(data.runs), tmp_path, evaluation="books"
    )
    assert sorted(path.name for path in made) == sorted(f"{name}-books.png" for name in KINDS)
    written = (tmp_path / "captions-books.md").read_text().strip().split("\n\n")
    assert [words.split("**")[1] for words in written] == [path.name for path in made]
    for words in written:
        paired = words.split("**")[1].removesuffix("-books.png") in protocols.against_length()
        kind = "the best line of that length, paired" if paired else "each line alone and unpaired"
        assert kind in words and "over 12 documents" in words
    assert "targets in" in written[0]


def test_a_frame_has_verdicts_and_a_figure_its_lines(swept, tmp_path):
    folders = [run.folder for run in swept.runs if run.cells]
    frame = report.frame(folders)
    far = frame[(frame.protocol == "same_token") & (frame.length == 64)]
    assert set(far[far.group == "nope"].verdict) == {"behind"}
    assert (far[(far.group == "nope") & (far.method == "none")].behind > 0.3).all()
    plain = frame[(frame.protocol == "same_token") & (frame.method == "none")]
    (axes,) = report.figure(plain, title="RoPE is ahead").axes
    assert axes.get_title(loc="left") == "RoPE is ahead"
    (rope,) = [one for one in axes.lines if "#0072B2" == one.get_color()]
    expected = plain[plain.encoding == "rope"].groupby("length").bpb.mean()
    np.testing.assert_allclose(rope.get_ydata(), expected)
    assert list(rope.get_xdata()) == [16, 32, 64]
    parts = {"near": {"length": 16}, "far": {"length": 64}}
    (axes,) = report.figure(plain, x=parts, y="bits").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["near", "far"]
    near = {"length": 16, "less": {"length": 16}}
    (axes,) = report.figure(plain, x={"near": near, "far": near | {"length": 64}}).axes
    assert all(line.get_ydata()[0] == 0 for line in axes.lines)


def test_a_figure_in_given_axes_has_seeds_as_dots_and_bars_at_named_places(swept):
    frame = report.frame([run.folder for run in swept.runs if run.cells])
    plain = frame[(frame.protocol == "same_token") & (frame.method == "none")]
    rope = plain[plain.encoding == "rope"]
    figure, (left, right) = style.panels(1, 2)
    assert report.figure(rope, value="nll", seeds=True, axes=left) is figure
    line, dots = left.lines
    assert len(rope) == len(dots.get_xdata()) > len(line.get_xdata()) == 3
    np.testing.assert_allclose(sorted(dots.get_ydata()), sorted(rope.nll))
    assert left.get_xlabel() == "length (tokens)" and not left.collections
    places = {"near": {"length": 16}, "far": {"length": 64}}
    rows = {"RoPE": {}, "RoPE less itself": {"less": {}}}
    report.figure(rope.assign(bpb=-1000 * rope.bpb), rows, places, axes=right)
    names = [text.get_text().split(" ", 1) for text in right.texts]
    assert [name for _, name in names] == list(rows)
    assert names[0][0] == f"{-1000 * rope[rope.length == 64].bpb.mean():,.0f}"
    assert names[1][0] in ("0.00", "0.000") and not right.get_xlabel()
    kinds = {type(one).__name__ for one in right.collections}
    assert kinds <= {"LineCollection"}


def test_files_of_rows_are_a_frame_without_methods_that_were_left_out(swept, tmp_path):
    frame = report.frame([run.folder for run in swept.runs if run.cells])
    plain = frame[(frame.protocol == "same_token") & (frame.method == "none")]
    rows, left_out = tmp_path / "curves.csv.xz", {"method": "yarn:8", "flag": "made for rope"}
    written = plain.drop(columns=["line"]).assign(run="'-2+3")  # as `write_csv` escapes it
    pd.concat([written, pd.DataFrame([left_out])]).to_csv(rows, index=False)
    assert report.frame(rows).line.tolist() == plain.line.tolist()
    assert set(report.frame(rows).run) == {"-2+3"}
    (name,) = plain.evaluation.unique()
    assert len(report.frame(rows, name)) == len(plain) and report.frame(rows, "other").empty
