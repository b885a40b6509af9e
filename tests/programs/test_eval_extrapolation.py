"""eval_extrapolation.py: the targets it chooses, the methods it leaves out, texts it cannot read,
cells that are damaged, mixtures and scales."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
import tokenizers
from curves import rows_of
from running import script

from posenc_jax.evaluation import cells

SMALL = ["--config.multiples=1,2", "--config.protocols=same_token", "--config.window=False"]


@pytest.fixture
def alibi(call, tmp_path):
    call("train.py", tmp_path / "alibi", config="alibi", steps=3)
    return tmp_path / "alibi"


def test_extensions_that_do_not_fit_are_left_out_in_words_rows_and_page(alibi, call, tmp_path):
    words = [*SMALL, "--config.extensions=none,yarn:2,pi,interpolate+logn,logn"]
    out = call("eval_extrapolation.py", alibi, *words)
    assert "left out: yarn:2, pi: made for rope; interpolate+logn: made for learned" in out
    rows = rows_of(alibi)
    unfit = {row["method"]: row["flag"] for row in rows if not row["nll"]}
    assert unfit == {
        "yarn:2": "left out: made for rope",
        "pi": "left out: made for rope",
        "interpolate+logn": "left out: made for learned",
    }
    assert {row["method"] for row in rows if row["nll"]} == {"none", "logn", "fresh"}
    out = script("report.py", alibi, f"--out={tmp_path / 'page'}")
    note = "yarn:2, pi left out: made for rope; not evaluated for alibi"
    assert note in out and note in (tmp_path / "page" / "index.html").read_text()
    out = call("eval_extrapolation.py", alibi, *SMALL, "--config.extensions=none")
    assert "left out" not in out and all(row["nll"] for row in rows_of(alibi))


def test_a_list_of_which_nothing_fits_is_refused_with_what_does(alibi, call):
    out = call("eval_extrapolation.py", alibi, *SMALL, "--config.extensions=yarn,pi", code=2)
    assert "extensions='yarn,pi': none fits encoding 'alibi'" in out
    assert "those that do: " in out and "logn" in out
    words = ["--evaluate=configs/eval.py", "--evaluate.extensions=yarn"]
    out = call("train.py", alibi.parent / "new", *words, config="alibi", code=2)
    assert "none fits encoding 'alibi'" in out and not (alibi.parent / "new").exists()


@pytest.mark.parametrize(
    ("words", "fields", "message"),
    [
        ([], {"data.valid_fraction": 0.0}, "the run kept no documents for it"),
        ([], {}, "documents have the 257 tokens of the longest window"),
        (
            ["--evaluate.data.source=text", "--evaluate.data.path=/nowhere/*.txt"],
            {},
            "nothing matches '/nowhere/*.txt'",
        ),
    ],
)
def test_nothing_to_evaluate_on_is_refused_before_the_first_step(
    words, fields, message, call, tmp_path
):
    evaluation = ["--evaluate=configs/eval.py", "--evaluate.multiples=1,8", *words]
    out = call("train.py", tmp_path / "run", *evaluation, code=65, **fields)
    assert message in out and "step" not in out.partition(message)[0]
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_moved_text_is_read_with_the_fields_in_the_message(call, text, tmp_path):
    there, moved = tmp_path / "there", tmp_path / "moved"
    shutil.copytree(text, there, ignore=shutil.ignore_patterns("cache"))
    fields = {"data.path": f"{there}/*.txt", "data.cache": str(tmp_path / "cache"), "steps": 3}
    run = tmp_path / "run"
    call("train.py", run, **fields)
    there.rename(moved)
    out = call("eval_extrapolation.py", run, *SMALL, code=65)
    added = out.partition("where it is now, add ")[2].split()
    assert added == ["--config.data.source=text", "--config.data.path=NEW"]
    words = [word.replace("NEW", f"{moved}/*.txt") for word in added]
    call("eval_extrapolation.py", run, *SMALL, *words)
    assert {row["evaluation"] for row in rows_of(run)} == {"held-out"}


def test_a_cell_with_a_damaged_directory_is_computed_again(run, call):
    """Every byte of the archive's directory, and some of its data."""
    words = ["--config.multiples=1,2", "--config.extensions=none,pi:2,pi:4"]
    call("eval_extrapolation.py", run, *words)
    before = pd.read_csv(run / "eval" / "curves.csv")
    cell = min((run / "eval" / "cells").glob("*.npz"), key=lambda path: path.stat().st_size)
    whole, name = cell.read_bytes(), cell.stem
    store = cells.Store(cell.parent)
    right = store.get(name)
    begin = whole.index(b"PK\x01\x02")
    for place in [*range(0, begin, 97), *range(begin, len(whole))]:
        cell.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        found = store.get(name)
        if found is not None:  # what is flipped says nothing, such as a date
            for one, other in zip(found, right, strict=True):
                np.testing.assert_array_equal(one, other)
    cell.write_bytes(whole[: begin + 10])
    out = call("eval_extrapolation.py", run, *words)
    assert f"{cell} is computed again" in out
    # A cell measured alone is summed in another order than together with others.
    after = pd.read_csv(run / "eval" / "curves.csv")
    pd.testing.assert_frame_equal(after, before, rtol=1e-6, atol=1e-7)


def test_scales_are_drawn_without_the_run_as_it_is(run, call):
    words = ["--config.multiples=1,2", "--config.extensions=pi:2,pi:4", "--config.window=False"]
    call("eval_extrapolation.py", run, *words)
    assert (run / "plots" / "scale.png").exists()


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


@pytest.fixture(scope="module")
def trained(call, tmp_path_factory):
    """A model that has learned something of real text, evaluated to 8 L."""
    run = tmp_path_factory.mktemp("trained") / "run"
    cache = {"data.cache": tmp_path_factory.mktemp("cache")}
    call("train.py", run, **TRAINED, **cache)
    words = ["--config.multiples=1,2,8", "--config.extensions=none", ALL]
    return run, call("eval_extrapolation.py", run, *words)


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


def test_one_model_of_two_texts_has_a_curve_in_each(call, text, tmp_path):
    run = tmp_path / "run"
    mixture = f"text:0.6:path={text}/*.txt,variables:0.4:documents=40"
    fields = {"data.source": None, "data.mixture": mixture}
    fields |= {"train_length": 64, "steps": 6, "save_every": 3}
    assert "bits/byte" in call("train.py", run, **fields, stop_at=3, code=75)
    call("train.py", run, **fields)
    words = ["--config.lengths=64,128", "--config.last=8"]
    call("eval_extrapolation.py", run, *words)
    text_rows = rows_of(run)
    assert {row["evaluation"] for row in text_rows} == {"held-out"}
    assert all(row["bpb"] and not row["accuracy"] for row in text_rows if row["tokens"])
    words += ["--config.data.source=variables", "--config.protocols=answers,gap"]
    call("eval_extrapolation.py", run, *words)
    every = rows_of(run)
    answered = [row for row in every if row["evaluation"] == "variables"]
    assert {row["protocol"] for row in answered if row["tokens"]} == {"answers", "gap"}
    assert all(0 <= float(row["accuracy"]) <= 1 for row in answered if row["accuracy"])
    assert len(every) == len(text_rows) + len(answered)
    assert {row["step"] for row in every} == {"6"}
