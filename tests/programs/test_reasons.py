"""An exit code and a line that says what to do, where there was a traceback."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from running import script

SMALL = ["--config.multiples=1,2", "--config.extensions=none,pi:2,pi:4"]


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run", ignore=shutil.ignore_patterns("eval", "plots"))
    return tmp_path / "run"


def test_a_cell_with_a_damaged_directory_is_computed_again(run, call):
    """Every byte of the archive's directory, and some of its data."""
    call("eval_extrapolation.py", run, *SMALL)
    before = pd.read_csv(run / "eval" / "curves.csv")
    cell = min((run / "eval" / "cells").glob("*.npz"), key=lambda path: path.stat().st_size)
    whole, name = cell.read_bytes(), cell.stem
    from posenc_jax.evaluation.cells import Store

    store = Store(cell.parent)
    right = store.get(name)
    begin = whole.index(b"PK\x01\x02")
    for place in [*range(0, begin, 97), *range(begin, len(whole))]:
        cell.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        found = store.get(name)
        if found is not None:  # what is flipped says nothing, such as a date
            for one, other in zip(found, right, strict=True):
                np.testing.assert_array_equal(one, other)
    cell.write_bytes(whole[: begin + 10])
    out = call("eval_extrapolation.py", run, *SMALL)
    assert f"{cell} is computed again" in out
    # A cell measured alone is summed in another order than together with others.
    after = pd.read_csv(run / "eval" / "curves.csv")
    pd.testing.assert_frame_equal(after, before, rtol=1e-6, atol=1e-7)


def test_scales_are_drawn_without_the_run_as_it_is(run, call):
    words = ["--config.multiples=1,2", "--config.extensions=pi:2,pi:4", "--config.window=False"]
    call("eval_extrapolation.py", run, *words)
    assert (run / "plots" / "scale.png").exists()


@pytest.mark.slow
def test_one_bad_run_of_many_is_left_out_and_said(run, call, tmp_path):
    call("eval_extrapolation.py", run, *SMALL)
    bad = tmp_path / "bad"
    shutil.copytree(run, bad)
    (bad / "eval" / "sums.parquet").write_bytes(b"no")
    out = script("plot_curves.py", run, bad, f"--out={tmp_path}/pictures")
    assert "warning: skipped: " in out and "sums.parquet" in out and "same_token.png" in out
    out = script("report.py", run, bad, f"--out={tmp_path}/report")
    assert "bad: cannot read" in out
    (bad / "config.json").write_text(json.dumps({"model": 3}))
    out = script("report.py", run, bad, f"--out={tmp_path}/report")
    assert "skipped: bad: " in out and "Traceback" not in out
    assert "bad" in script("compare.py", run, bad, code=74)


def test_a_run_may_be_called_with_an_at_sign_or_a_colon(run, call, tmp_path):
    call("eval_extrapolation.py", run, *SMALL)
    odd = tmp_path / "a@b:c"
    shutil.copytree(run, odd)
    plain = script("compare.py", f"{run}@pi:2", run).partition("length")[2]
    assert plain == script("compare.py", f"{odd}@pi:2", odd).partition("length")[2]
    script("plot_curves.py", f"{odd}@none,pi:2", f"--out={tmp_path}/pictures")
    assert (tmp_path / "pictures" / "same_token.png").exists()
