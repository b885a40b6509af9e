"""scripts/report.py, plot_curves.py, compare.py, diagnose.py and plot_encodings.py read runs."""

import csv
import json
import re
import shutil

import pytest
from curves import rows_of
from evaluated import make_run
from running import EVALUATION, script

from posenc_jax.evaluation import compare
from posenc_jax.report.diagnosis import rows_of as rows_read
from posenc_jax.report.ranking import rankings
from posenc_jax.report.runs import read_runs
from posenc_jax.runs.subject import load_subject


def test_half_a_sweep_is_reported(tmp_path):
    wandb = {"mode": "offline", "project": "p", "group": "", "required": True}
    make_run(tmp_path / "sweep" / "rope-s0", "rope", 0, wandb=wandb)
    make_run(tmp_path / "sweep" / "t5-s0", "t5", 0, evaluated=False)
    make_run(tmp_path / "texts" / "fox-s0", "fox", 0, evaluated=False)
    out = tmp_path / "out"
    said = script("report.py", tmp_path / "sweep", "--text", tmp_path / "texts", f"--out={out}")
    assert "2 runs, 1 of them evaluated" in said and "t5-s0: not evaluated yet" in said
    assert "fox-s0: not evaluated yet" in said and "fox-s0" in (out / "index.html").read_text()
    assert "wandb" not in said and not (out / "wandb").exists()
    assert {"index.html", "same_token.png"} <= {path.name for path in out.iterdir()}
    captions = (out / "captions.md").read_text()
    assert "**same_token.png**" in captions and "paired over 12 documents" in captions
    assert "not a folder" in script("report.py", tmp_path / "nothing", f"--out={out}", code=65)


def test_a_run_is_called_by_its_folder(evaluated, call, tmp_path):
    """Also with an at sign or a colon in its name, and by an end of its path beside another of that
    name; a label comes first."""
    plain = script("compare.py", f"{evaluated}@yarn", evaluated).partition("length")[2]
    odd, other = evaluated.rename(tmp_path / "a@b:c"), tmp_path / "elsewhere" / "a@b:c"
    assert plain == script("compare.py", f"{odd}@yarn", odd).partition("length")[2]
    call("eval_extrapolation.py", odd, *EVALUATION, "--config.name=again")
    assert {row["run"] for row in rows_of(odd)} == {"a@b:c"}
    shutil.copytree(odd, other)
    words, out = [f"{odd}@none", f"{other}@none,yarn:2"], f"--out={tmp_path}/pictures"
    for evaluation in ([], ["--evaluation=again"]):
        script("plot_curves.py", *words, *evaluation, out)
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert {"same_token.png", "same_token-again.png", "captions-again.md"} <= drawn
    cells = compare.by_name(compare.readable(words))
    ends = {f"{tmp_path.name}/a@b:c", "elsewhere/a@b:c"}
    assert {cell.facts["run"] for cell in cells} == ends
    assert str(tmp_path) not in (tmp_path / "pictures" / "captions.md").read_text()
    words = [f"{odd}@yarn:2@64", odd, "--format=latex"]
    assert "of a@b:c@yarn:2@64 minus those of a@b:c," in script("compare.py", *words)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"label": "my RoPE"}))
    assert "of a@b:c minus those of my RoPE," in script("compare.py", odd, other)


def test_curves_are_compared_over_the_same_targets_alone(evaluated, call, tmp_path):
    out = script("compare.py", f"{evaluated}@yarn", evaluated)
    compared = [line for line in out.splitlines() if re.match(r"\w+ \d+ ", line)]
    assert len(compared) == 3 + 3 + 2 + 1
    assert max(map(len, compared)) <= 80
    rows = {
        (r["extension"], r["length"]): float(r["nll"])
        for r in rows_of(evaluated)
        if r["protocol"] == "same_token" and not r["window"]
    }
    said = float(re.search(r"same_token 64 +([+-][\d.]+)", out)[1])
    assert said == pytest.approx(rows["yarn", "64"] - rows["none", "64"], abs=1e-4)
    out = script("compare.py", f"{evaluated}@yarn:2@64", f"{evaluated}@none@32")
    said = float(re.search(r"same_token 64 against 32 +([+-][\d.]+)", out)[1])
    assert said == pytest.approx(rows["yarn", "64"] - rows["none", "32"], abs=1e-4)
    curves = (f"{evaluated}@yarn:2@64", f"{evaluated}@none@32")
    out = script("compare.py", *curves, "--format=latex")
    assert re.search(rf"^same\\_token 64 against 32 & \{said:+.4f}\*? &", out, re.M)
    out = script("compare.py", f"{evaluated}@yran", evaluated, code=65)
    assert f"@yran matches no evaluated cell; {evaluated} has " in out and "yarn:2" in out
    assert "at lengths 16, 32, 64" in script("compare.py", f"{evaluated}@8", evaluated, code=65)
    other = tmp_path / "other"
    shutil.copytree(evaluated, other)
    call("eval_extrapolation.py", other, *EVALUATION, "--config.windows=1")
    assert "different targets" in script("compare.py", evaluated, other, code=65)
    assert "different targets" in script("plot_curves.py", evaluated, other, code=65)
    (other / "eval" / "sums.parquet").write_bytes(b"no")
    out = script("plot_curves.py", evaluated, other, f"--out={tmp_path}/pictures")
    assert "warning: skipped: " in out and "same_token.png" in out


def test_runs_of_two_lengths_stand_on_one_axis_where_lengths_are_given(call, tmp_path):
    """The same targets at the same lengths, so a report ranks them and a picture shows both."""
    runs = [tmp_path / f"L{length}" for length in (16, 32)]
    asked = ["--config.lengths=16,32,64", "--config.extensions=none"]
    for run in runs:
        call("train.py", run, train_length=int(run.name[1:]), steps=4)
        call("eval_extrapolation.py", run, *asked)
    found = read_runs(runs)
    ranks = rankings(found.runs)
    assert [*found.notes, *ranks.notes] == []
    for table in (ranks.extended, ranks.plain):
        for protocol in ("same_token", "nonoverlap"):
            assert list(table[protocol]) == [16, 32, 64]
            for entries in table[protocol].values():
                assert len({entry.group for entry in entries}) == 2
    script("plot_curves.py", *runs, f"--out={tmp_path}/pictures")
    assert (tmp_path / "pictures" / "same_token.png").exists()


def test_a_run_is_diagnosed(evaluated):
    out = script("diagnose.py", f"{evaluated}@none,yarn@64", "--documents=2")
    for name in ("spectrum.csv", "spectrum.png", "attention.csv", "attention.png", "token_0.csv"):
        assert name in out
    assert "none: no attention sink: 0 of 2 heads" in out
    with (evaluated / "eval" / "diagnose" / "attention.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 2 * 1 * 2 * 64  # extensions, layers, heads, positions
    assert all(float(line["beyond_L"]) == 0 for line in lines if int(line["position"]) <= 32)
    assert len(rows_read(load_subject(evaluated), 1, 64)) == 1
    script("diagnose.py", f"{evaluated}@none,window:size=8@64", "--documents=2")
    with (evaluated / "eval" / "diagnose" / "attention.csv").open() as stream:
        beyond = {line["extension"]: float(line["beyond_L"]) for line in csv.DictReader(stream)}
    assert beyond["window:size=8"] == 0 < beyond["none"]  # of the last position
    assert "unknown extension 'yran'" in script("diagnose.py", f"{evaluated}@yran@64", code=2)
    out = script("diagnose.py", f"{evaluated}@interpolate@64", code=2)
    assert "none fits encoding 'rope' (interpolate: made for learned)" in out
    assert "attention.csv" in script("diagnose.py", f"{evaluated}@none@16", "--documents=2")


@pytest.mark.slow
def test_every_picture_of_an_encoding_is_drawn(call, tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    call("train.py", run, config="fox")
    script("plot_encodings.py", run, f"--out={out}", "--length=16")
    names = ["rope_wavelengths.png", "biases.png", "remapped.png", "gates.png"]
    assert sorted(path.name for path in out.glob("*.png")) == sorted(names)
