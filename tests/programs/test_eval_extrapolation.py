"""eval_extrapolation.py: its curves, how it resumes, what it leaves out and what it refuses."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pandas as pd
import pytest
from curves import rows_of
from lossy import LOSSY
from running import EVALUATION as SMALL
from running import ROOT, finish, python, script

from posenc_jax.evaluation import protocols, records
from posenc_jax.runs.checkpoints import Checkpoints
from posenc_jax.runs.subject import load_subject
from posenc_jax.runtime.errors import Stop
from posenc_jax.runtime.files import locked

SHORT = ["--config.multiples=1,2", "--config.protocols=same_token", "--config.window=False"]


def test_an_evaluation_writes_its_curves_and_nothing_else_in_the_run(whole, evaluated_once):
    run, out = evaluated_once
    before, after = (
        {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        for folder in (whole[0], run)
    )
    assert {path: after[path] for path in before} == before
    assert {path.parts[0] for path in set(after) - set(before)} == {"eval", "plots"}
    rows = rows_of(run)
    assert list(rows[0]) == list(protocols.columns())
    lengths = {"same_token": 3, "nonoverlap": 3, "sliding": 2, "position": 1}
    for protocol, count in lengths.items():
        chosen = [r for r in rows if r["protocol"] == protocol]
        assert (
            len(chosen) == (6 if protocol == "same_token" else 5) * count
            and len({r["token_hash"] for r in chosen}) == 1
        )
    methods = {(r["extension"], r["scale"], r["window"]) for r in rows}
    assert methods == {
        ("none", "", ""),
        ("none", "", "32"),
        ("yarn", "2.0", ""),
        ("pi", "3.0", ""),
        ("dynamic_ntk", "", ""),
        ("fresh", "", ""),
    }
    at = {
        (r["extension"], r["length"]): float(r["nll"])
        for r in rows
        if r["protocol"] == "nonoverlap" and not r["window"]
    }
    assert at["dynamic_ntk", "32"] == at["none", "32"] != at["yarn", "32"]
    for word in ("yarn:2", "same_token", "gain over null", "curves.csv"):
        assert word in out
    lines = [json.loads(s) for s in (run / "eval" / "curves.jsonl").read_text().splitlines()]
    assert [r["nll"] for r in lines] == [float(r["nll"]) for r in rows]
    assert records.rows(records.read_cells(run / "eval")) == lines
    assert list(protocols.columns())[37] == "method"  # newer ones come after
    table = pd.read_csv(run / "eval" / "curves.csv").query("protocol == 'same_token'")
    table = table.pivot(index="method", columns="length", values="bpb")
    assert set(table.index) == {"none", "window", "fresh", "yarn:2", "pi:3", "dynamic_ntk"}
    assert list(table) == [16, 32, 64]
    pictures = {p.name for p in (run / "plots").iterdir()}
    drawn = {"same_token.png", "nonoverlap.png", "sliding.png", "position.png"}
    assert pictures == drawn | {"captions.md"}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads of Linux")
def test_reading_sums_starts_no_thread(evaluated):
    """One that is still starting aborts a program that ends at once: 1 of 40 on two busy cores."""
    python(
        "-c",
        f"""
import os
from pathlib import Path
from posenc_jax.evaluation.records import read_cells
before = os.listdir("/proc/self/task")
assert read_cells(Path({str(evaluated / "eval")!r}))
assert os.listdir("/proc/self/task") == before
""",
    )


def test_an_interrupted_evaluation_leaves_the_curves_of_what_is_done_and_resumes(
    evaluated, program, call, tmp_path
):
    other = tmp_path / "other"
    shutil.copytree(evaluated, other, ignore=shutil.ignore_patterns("eval", "plots"))
    process = program("eval_extrapolation.py", other, *SMALL, "--config.tokens_per_call=32")
    while not list(other.glob("eval/cells/[!.]*.npz")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out = finish(process, 75)
    assert "stopped by SIGTERM" in out and "the same command resumes" in out
    assert 0 < len(rows_of(other)) < 45
    out = call("eval_extrapolation.py", other, *SMALL)
    assert int(re.search(r"(\d+) of 45 cells cached", out)[1]) > 0
    for a, b in zip(rows_of(other), rows_of(evaluated), strict=True):
        assert a["token_hash"] == b["token_hash"]
        assert float(a["nll"]) == pytest.approx(float(b["nll"]), rel=1e-5)
    before = (other / "eval" / "curves.csv").read_text()
    assert "45 of 45 cells cached" in call("eval_extrapolation.py", other, *SMALL)
    assert (other / "eval" / "curves.csv").read_text() == before


def test_one_evaluation_at_a_time(run, call):
    (run / "eval").mkdir()
    with locked(run / "eval", "another evaluation of this run"):
        out = call("eval_extrapolation.py", run, *SMALL, code=73)
    assert "is in use by another evaluation" in out and "process" in out


def test_a_run_in_training_is_read_at_a_checkpoint_that_stays(run, monkeypatch):
    """The last one is taken away between being seen and being read; the next one is there."""
    real, gone = Checkpoints.restore, []

    def vanishing(self, step, *words):
        if not gone:
            gone.append(step)
            shutil.rmtree(self.folder / str(step))
        return real(self, step, *words)

    monkeypatch.setattr(Checkpoints, "restore", vanishing)
    assert load_subject(run).step == 8 and gone == [12]
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(Stop, match="has no checkpoint yet"):
        load_subject(run)


def test_every_checkpoint_has_a_curve(run, call):
    words = ["--config.multiples=1,2", "--config.extensions=none", "--every-checkpoint"]
    call("eval_extrapolation.py", run, *words)
    rows = [r for r in rows_of(run) if r["protocol"] == "same_token" and r["method"] == "none"]
    assert [(r["step"], r["length"]) for r in rows] == [
        (step, length) for step in ("8", "12") for length in ("32", "64")
    ]
    assert rows[0]["nll"] != rows[2]["nll"]
    assert (run / "plots" / "budget.png").exists()
    call("eval_extrapolation.py", run, *words[:2], "--step=8")
    again = [r for r in rows_of(run) if r["protocol"] == "same_token" and r["method"] == "none"]
    assert [r["nll"] for r in again] == [r["nll"] for r in rows]  # nothing of the others is lost
    assert (run / "plots" / "budget.png").exists()


def by_evaluation(run):
    """The one token_hash of each evaluation's same_token rows."""
    found = {}
    for row in rows_of(run):
        if row["protocol"] == "same_token":
            found.setdefault(row["evaluation"], set()).add((row["token_hash"], row["data"]))
    assert all(len(hashes) == 1 for hashes in found.values())
    return {name: hashes.pop() for name, hashes in found.items()}


@pytest.mark.slow
def test_evaluations_of_several_texts_stay_beside_each_other(run, call, text, tmp_path):
    (tmp_path / "words").mkdir()
    for i in range(3):
        (tmp_path / "words" / f"{i}.txt").write_text("other words and so on " * (20 + i))
    words = ["--config.data.source=text", f"--config.data.path={tmp_path}/words/*.txt"]
    call("eval_extrapolation.py", run, *SMALL, *words)
    assert {r["documents"] for r in rows_of(run)} == {"3"}
    out = call("eval_extrapolation.py", run, *SMALL)
    assert "curves.csv holds the evaluations held-out, words; this one is held-out" in out
    found = by_evaluation(run)
    assert list(found) == ["held-out", "words"] and len(set(found.values())) == 2
    rows = {row["evaluation"]: row for row in rows_of(run)}
    assert rows["words"]["text"] == f"text:{tmp_path}/words/*.txt"
    assert rows["held-out"]["text"].startswith("held out of text:")
    pictures = {p.name for p in (run / "plots").glob("*.png")}
    assert {"same_token.png", "same_token-words.png", "position-words.png"} <= pictures
    before = rows_of(run)
    own = ["--config.data.source=text", f"--config.data.path={text}/*.txt"]
    call("eval_extrapolation.py", run, *SMALL, *own)  # its own text by name: what was held out
    assert by_evaluation(run) == found and rows_of(run) == before
    (tmp_path / "words" / "3.txt").write_text("what came later " * 40)
    call("eval_extrapolation.py", run, *SMALL, *words)  # the same name, another text
    names = list(by_evaluation(run))
    assert len(names) == 3 and re.fullmatch("words-[0-9a-f]{6}", names[0])
    assert records.rows(records.read_cells(run / "eval")) == [
        json.loads(s) for s in (run / "eval" / "curves.jsonl").read_text().splitlines()
    ]
    one, other = f"{run}@yarn", f"{run}@none"
    said = [script("compare.py", one, other, f"--evaluation={n}") for n in ("words", "held-out")]
    assert said[0] != said[1] == script("compare.py", one, other)
    assert "have: words-" in script("compare.py", one, other, "--evaluation=no", code=65)


def test_few_targets_are_warned_of(run, call):
    out = call("eval_extrapolation.py", run, *SMALL, "--config.windows=2", "--config.last=1")
    assert re.search(r"warning: same_token scores \d+ targets, and below about 2,000", out)
    assert re.search(r"3 documents, 6 windows of 64 tokens, 384 targets, 6 of them for same", out)


def test_a_text_that_changed_since_training_is_not_read(call, text, tmp_path):
    """The split is drawn from the documents' own bytes: what was trained on could be held out."""
    copy = tmp_path / "text"
    shutil.copytree(text, copy, ignore=shutil.ignore_patterns("cache"))
    call("train.py", tmp_path / "run", **{"data.path": f"{copy}/*.txt", "steps": 3})
    for path in copy.glob("*.txt"):
        path.write_text(path.read_text() + "\n")
    out = call("eval_extrapolation.py", tmp_path / "run", *SMALL, code=65)
    assert "the run's text changed since it was trained" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--config.multiples=1,64"], 65, "documents have the 2049 tokens .* Up to length 239"),
        (["--config.multiples=1,1.5"], 2, "length 32 does not divide the longest one, 48"),
        (["--config.last=9"], 2, "last must be at most 8: the shortest length"),
        (["--step=8", "--every_checkpoint"], 2, "mutually exclusive"),
        (["--step=4"], 74, r"has no checkpoint of step 4; have: \[8, 12\]"),
        (
            ["--config.lengths=16,32", "--config.multiples=1,2"],
            2,
            "lengths = '16,32' and multiples = '1,2' are mutually exclusive; give one",
        ),
    ],
)
def test_runs_that_cannot_be_evaluated_are_refused(words, code, message, run, call):
    assert re.search(message, call("eval_extrapolation.py", run, *words, code=code))


def test_extensions_that_do_not_fit_are_left_out_in_words_rows_and_page(call, tmp_path):
    alibi = tmp_path / "alibi"
    call("train.py", alibi, config="alibi", steps=3)
    words = [*SHORT, "--config.extensions=none,yarn:2,pi,interpolate+logn,logn"]
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
    out = call("eval_extrapolation.py", alibi, *SHORT, "--config.extensions=none")
    assert "left out" not in out and all(row["nll"] for row in rows_of(alibi))


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


def test_progress_bars_are_for_terminals_alone(run, command, tmp_path, monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    words = ["--config.multiples=1,2", "--config.extensions=none,yarn:2"]
    screen, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 120))
    for output, name in ((terminal, "shown"), (subprocess.PIPE, "logged")):
        texts = tmp_path / name / "texts"
        texts.mkdir(parents=True)
        for i in range(9):
            (texts / f"{i}.txt").write_text(f"{name} {i} " * 60)
        more = ["--config.data.source=text", f"--config.data.path={texts}"]
        program = [sys.executable, *command("eval_extrapolation.py", run, *words, *more)]
        done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=output, check=True)
    os.set_blocking(screen, False)
    shown = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            shown += os.read(screen, 4096)
    for cell in ("tokens of text", "none at 32", "yarn:2 at 64", "window at 64"):
        assert f"{cell}: ".encode() in shown
    assert b"\r" not in done.stderr


def test_a_quick_look_reads_one_protocol_and_leaves_the_evaluation_as_it_is(run, call):
    words = ["--config.multiples=1,2", "--config.extensions=none,yarn:2"]
    out = call("eval_extrapolation.py", run, *words)
    assert "held-out: same_token" in out and "held-out: nonoverlap" not in out
    assert {row["protocol"] for row in rows_of(run)} == {"same_token", "nonoverlap", "position"}
    before = [row for row in rows_of(run) if row["evaluation"] == "held-out"]
    out = call("eval_extrapolation.py", run, *words, "--quick")
    assert "quick: same_token" in out and "nonoverlap" not in out
    rows = rows_of(run)
    assert [row for row in rows if row["evaluation"] == "held-out"] == before
    (protocol,) = {row["protocol"] for row in rows if row["evaluation"] == "quick"}
    assert protocol == "same_token" and (run / "plots" / "same_token-quick.png").exists()
    out = call("eval_extrapolation.py", run, *words, "--quick", "--config.protocols=nonoverlap")
    assert "quick: nonoverlap" in out and "quick: same_token" not in out  # what is given stays
    usual = "--config.protocols=same_token,nonoverlap,position"
    out = call("eval_extrapolation.py", run, *words, "--quick", usual)
    assert "quick: nonoverlap" in out and "quick: same_token" in out


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
    LOSSY["lower_case"]().save(str(tmp_path / "lower.json"))
    (tmp_path / "text").mkdir()
    for path in text.glob("*.txt"):
        (tmp_path / "text" / path.name).write_text(path.read_text().title())
    fields = {"data.path": f"{tmp_path}/text/*.txt", "data.tokenizer": tmp_path / "lower.json"}
    fields |= {"steps": 3, "data.cache": tmp_path / "cache", "data.valid_fraction": 0.6}
    call("train.py", tmp_path / "run", **fields)
    words = ["--config.multiples=1,2", "--config.extensions=none,yarn"]
    out = call("eval_extrapolation.py", tmp_path / "run", *words)
    assert "warning" in out and not re.search(r"[+-]\d\.\d{3} \| ", out)
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


def test_a_run_on_variables_is_read_for_found_and_order_and_with_keys_hidden(call, tmp_path):
    """Parts, columns and tables; unit/evaluation/test_order reads them with known readers."""
    run = tmp_path / "run"
    fields = {"data.source": "synthetic", "data.task": "variables", "data.variant": "ordered"}
    fields |= {"data.gaps": "octaves", "data.far": 2.0, "data.documents": 40, "data.path": None}
    call("train.py", run, config="rope", steps=4, **fields, **{"data.valid_fraction": None})
    asked = ["--config.protocols=found,last_of_two", "--config.extensions=none,yarn"]
    out = call("eval_extrapolation.py", run, *asked, "--config.multiples=1,2", **fields)
    assert "found: share found, freed of guesses" in out and "held" in out
    rows = {(r["method"], r["protocol"], r["length"], r["part"]): r for r in rows_of(run)}
    found = rows["none", "found", "64", "beyond"]
    share = (float(found["accuracy"]) - 1 / 6) / (5 / 6)
    assert float(found["found"]) == pytest.approx(share) and not found["order"]
    pairs, single = (rows["none", "last_of_two", "64", p] for p in ("beyond", "one-pass"))
    assert pairs["tokens"] == single["tokens"] == single["answers"]
    assert float(pairs["held"]) == pytest.approx(
        float(pairs["answers"] or 0) / int(pairs["tokens"])
    )
    parts = (float(single[name]) for name in ("accuracy", "older_right", "other"))
    assert sum(parts) == pytest.approx(1)
    assert rows["yarn:2", "last_of_two", "32", "within"]["accuracy"]
    out = script("diagnose.py", f"{run}@none,yarn@64", "--knockout")
    assert "older setting from the last" in out and "none at 32" in out
    table = pd.read_csv(run / "eval" / "diagnose" / "knockout.csv")
    assert len(table) == 2 * 2 * 4
    assert (table.pairs[table.length == 64] == int(single["tokens"])).all()
    nothing = table[(table.hidden == "nothing") & (table.extension == "none")]
    right = round(float(single["accuracy"]) * int(single["answers"]))
    assert nothing["last"].iloc[1] == right  # the same answers as in the evaluation
    assert (run / "plots" / "knockout.png").exists()
