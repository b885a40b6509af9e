"""One model of two texts: trained, resumed, and read in each of them."""

import csv

import pytest

MIXED = {
    "data.source": None,
    "train_length": 64,
    "steps": 6,
    "save_every": 3,
}
READ = ["--config.lengths=64,128", "--config.last=8"]


@pytest.fixture
def run(call, text, tmp_path):
    workdir = tmp_path / "run"
    mixture = f"text:0.6:path={text}/*.txt,variables:0.4:documents=40"
    fields = MIXED | {"data.mixture": mixture}
    out = call("train.py", workdir, **fields, stop_at=3, code=75)
    assert "bits/byte" in out
    call("train.py", workdir, **fields)
    return workdir


def rows(run):
    with (run / "eval" / "curves.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_one_model_two_curves(run, call):
    call("eval_extrapolation.py", run, *READ)
    text = rows(run)
    assert {row["evaluation"] for row in text} == {"held-out"}
    assert all(row["bpb"] and not row["accuracy"] for row in text if row["tokens"])
    asked = ["--config.data.source=variables", "--config.protocols=answers,gap"]
    call("eval_extrapolation.py", run, *READ, *asked)
    answered = [row for row in rows(run) if row["evaluation"] == "variables"]
    assert {row["protocol"] for row in answered if row["tokens"]} == {"answers", "gap"}
    assert all(0 <= float(row["accuracy"]) <= 1 for row in answered if row["accuracy"])
    assert len(rows(run)) == len(text) + len(answered)
    assert {row["step"] for row in rows(run)} == {"6"}
