"""n-gram baselines on a run's targets, in files, pictures and reports."""

import shutil

import pytest
from curves import rows_of

from posenc_jax.evaluation import cells, ngrams
from posenc_jax.report import page, table
from posenc_jax.report.ranking import rankings
from posenc_jax.report.runs import read_runs
from scripts import yardstick

EVALUATION = ["--config.multiples=0.5,1,2", "--config.protocols=same_token,nonoverlap"]


@pytest.fixture
def evaluated(run, call):
    """A finished run of one's own, evaluated in its only text."""
    call("eval_extrapolation.py", run, *EVALUATION)
    return run


def test_n_grams_are_counted_in_an_epoch_and_scored_on_the_targets(evaluated, tmp_path):
    assert yardstick.main(["yardstick.py", str(tmp_path)]) == 0
    rows = ngrams.read_yardsticks(evaluated / "eval")
    assert [row["order"] for row in rows] == [2, 3, 4, 5, 6]
    assert 0 < rows[1]["counted"] < 12 * 4 * 32  # an epoch is less than the steps read
    (row,) = [
        row
        for row in rows_of(evaluated)
        if (row["protocol"], row["length"], row["method"]) == ("same_token", "64", "none")
    ]
    assert rows[0]["token_hash"] == row["token_hash"] and rows[0]["tokens"] == int(row["tokens"])

    data = read_runs([tmp_path])
    assert "\n3-gram" in table.table(data)
    text = page.write_page(data, rankings(data.runs), tmp_path / "page").read_text()
    assert '<td class="left">3-gram</td>' in text and f"{rows[1]['bpb']:.2f}" in text

    record = cells.read_record(evaluated / "eval")
    short = [cell for cell in record.cells if cell.facts["length"] < 64]
    cells.write_record(evaluated / "eval", record._replace(cells=short))
    assert ngrams.measure_ngrams(evaluated) == rows  # also if no method reached the longest length


def test_a_run_that_read_another_text_or_nothing_yet_has_none(evaluated, call, tmp_path, capfd):
    for i in range(2):
        (tmp_path / f"{i}.txt").write_text(f"{i} another text " * 20)
    other = ["--config.data.source=text", f"--config.data.path={tmp_path}/*.txt"]
    call("eval_extrapolation.py", evaluated, *EVALUATION, *other, "--config.name=other")
    assert yardstick.main(["yardstick.py", str(evaluated), "--evaluation=other"]) == 65
    assert "read another text than the run's own" in capfd.readouterr().err
    shutil.rmtree(evaluated / "eval")
    assert yardstick.main(["yardstick.py", str(evaluated)]) == 65
    assert "none of these runs is evaluated yet" in capfd.readouterr().err
