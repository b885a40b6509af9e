"""The default number of scored targets, and the null model."""

import csv
import re

import numpy as np
import pytest
import tokenizers
from running import finish, script

from posenc_jax.evaluation import cells

TRAINED = {
    "data.source": "stdlib",
    "model.width": 32,
    "model.layers": 2,
    "batch_size": 32,
    "accumulate": 1,
    "steps": 200,
    "warmup_steps": 20,
    "learning_rate": 0.01,
    "valid_every": 200,
    "save_every": 200,
    "data.valid_fraction": 0.1,
}
ALL = "--config.protocols=same_token,nonoverlap,sliding,position"


def rows_of(run):
    with (run / "eval" / "curves.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def trained(program, tmp_path_factory):
    """A model that has learned something of real text, evaluated to 8 L."""
    run = tmp_path_factory.mktemp("trained") / "run"
    cache = {"data.cache": tmp_path_factory.mktemp("cache")}
    finish(program("train.py", run, **TRAINED, **cache))
    words = ["--config.multiples=1,2,8", "--config.extensions=none", ALL]
    return run, finish(program("eval_extrapolation.py", run, *words))


@pytest.mark.slow
def test_by_default_the_targets_are_enough(trained):
    run, out = trained
    rows = [row for row in rows_of(run) if row["protocol"] == "same_token"]
    assert all(2_000 <= int(row["tokens"]) < 3_000 for row in rows)
    assert all(int(row["documents"]) >= 40 for row in rows)
    assert all(int(row["windows"]) * 8 == int(row["tokens"]) for row in rows)
    found = re.search(
        r"(\d+) documents, (\d+) windows of 256 tokens, [\d,]+ targets, 2,\d+ of", out
    )
    assert found and int(found[2]) == int(rows[0]["windows"])
    assert f"targets in {found[2]} windows of {found[1]} documents" in out
    assert "warning" not in out


@pytest.mark.slow
def test_windows_lie_over_the_whole_of_a_document(trained):
    run, _ = trained
    (stored,) = cells.read_record(run / "eval").places
    starts, documents = stored.start, stored.document
    assert len(starts) >= 250 and len(set(zip(documents, starts, strict=True))) == len(starts)
    one = [starts[documents == n] for n in set(documents)]
    assert np.median([places.min() for places in one]) > 256  # no title pages
    assert max(places.max() for places in one) > 20_000


@pytest.mark.slow
def test_a_window_of_the_trained_length_gains_nothing_over_the_null(trained):
    """Its model uses no more than L tokens, so its gain is 0 but for what other targets change."""
    rows = [row for row in rows_of(trained[0]) if row["window"] and int(row["length"]) > 32]
    assert {row["protocol"] for row in rows} == {"same_token", "nonoverlap", "sliding", "position"}
    for row in rows:
        assert abs(float(row["gain_bpb"])) < 0.02, row
        low, null, high = (float(row[name]) for name in ("null_low", "null_nll", "null_high"))
        assert low < null < high < low + 0.4
        assert float(row["gain_low"]) <= float(row["gain_bpb"]) <= float(row["gain_high"])


@pytest.mark.slow
def test_no_bits_per_byte_where_the_tokenizer_loses_text(call, tmp_path, text):
    """All letters in lower case: what is predicted is not the text."""
    model = tokenizers.models.WordLevel({letter: i for i, letter in enumerate("abcdefgh ")}, "a")
    lower = tokenizers.Tokenizer(model)
    lower.normalizer = tokenizers.normalizers.Lowercase()
    lower.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    lower.decoder = tokenizers.decoders.Fuse()
    lower.save(str(tmp_path / "lower.json"))
    (tmp_path / "text").mkdir()
    for path in text.glob("*.txt"):
        (tmp_path / "text" / path.name).write_text(path.read_text().title())
    fields = {"data.path": f"{tmp_path}/text/*.txt", "data.tokenizer": tmp_path / "lower.json"}
    fields |= {"steps": 3, "data.cache": tmp_path / "cache", "data.valid_fraction": 0.6}
    call("train.py", tmp_path / "run", **fields)
    words = ["--config.multiples=1,2", "--config.extensions=none,yarn"]
    out = call("eval_extrapolation.py", tmp_path / "run", *words)
    assert "warning" in out and "bits per byte |" not in out.replace("in bits per byte |", "")
    rows = rows_of(tmp_path / "run")
    for row in rows:
        assert row["bpb"] == row["gain_bpb"] == row["gain_low"] == ""
        assert float(row["nll"]) > 0 and float(row["null_nll"]) > 0
        assert row["flag"] == "no bits per byte: the tokenizer loses text"
    assert (tmp_path / "run" / "plots" / "same_token.png").exists()
    said = script("compare.py", f"{tmp_path}/run@yarn", f"{tmp_path}/run")
    assert "bits per byte" not in said and "documents" in said
    said = script("report.py", tmp_path / "run", f"--out={tmp_path}/report")
    assert "its tokenizer loses text" in said
