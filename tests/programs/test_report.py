"""scripts/report.py, plot_curves.py and compare.py: programs that read the folders of runs."""

import json
import shutil

import pytest
from evaluated import make_run
from running import script


@pytest.fixture
def evaluated(run, call):
    words = "--config.multiples=1,2", "--config.extensions=none,pi:2,pi:4"
    call("eval_extrapolation.py", run, *words)
    return run


def test_half_a_sweep_is_reported(tmp_path):
    wandb = {"mode": "offline", "project": "p", "group": "", "required": True}
    make_run(tmp_path / "sweep" / "rope-s0", "rope", 0, wandb=wandb)
    make_run(tmp_path / "sweep" / "t5-s0", "t5", 0, evaluated=False)
    out = tmp_path / "out"
    said = script("report.py", tmp_path / "sweep", f"--out={out}")
    assert "2 runs, 1 of them evaluated" in said and "t5-s0: not evaluated yet" in said
    assert "wandb" not in said and not (out / "wandb").exists()
    assert {"index.html", "same_token.png"} <= {path.name for path in out.iterdir()}
    captions = (out / "captions.md").read_text()
    assert "**same_token.png**" in captions and "over seeds of each line alone" in captions
    assert "compare.py pairs them" in captions
    assert "not a folder" in script("report.py", tmp_path / "nothing", f"--out={out}", code=65)


def test_one_bad_run_of_many_is_left_out_and_said(evaluated, tmp_path):
    run, bad = evaluated, tmp_path / "bad"
    shutil.copytree(run, bad)
    (bad / "eval" / "sums.parquet").write_bytes(b"no")
    out = script("plot_curves.py", run, bad, f"--out={tmp_path}/pictures")
    assert "warning: skipped: " in out and "sums.parquet" in out and "same_token.png" in out
    out = script("report.py", run, bad, f"--out={tmp_path}/report")
    assert "bad: cannot read" in out
    (bad / "config.json").write_text(json.dumps({"model": 3}))
    assert "skipped: bad: " in script("report.py", run, bad, f"--out={tmp_path}/report")
    assert "bad" in script("compare.py", run, bad, code=74)


def test_a_run_may_be_called_with_an_at_sign_or_a_colon(evaluated, tmp_path):
    run, odd = evaluated, tmp_path / "a@b:c"
    shutil.copytree(run, odd)
    plain = script("compare.py", f"{run}@pi:2", run).partition("length")[2]
    assert plain == script("compare.py", f"{odd}@pi:2", odd).partition("length")[2]
    script("plot_curves.py", f"{odd}@none,pi:2", f"--out={tmp_path}/pictures")
    assert (tmp_path / "pictures" / "same_token.png").exists()
