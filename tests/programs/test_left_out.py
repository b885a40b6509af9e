"""Evaluations name what they leave out; runs that could not be evaluated are refused."""

import shutil

import pytest
from curves import rows_of
from running import ROOT, TINY, script

from posenc_jax.sweeping.jobs import jobs_of

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


def test_a_sweep_over_many_encodings_has_one_list_for_all(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipes = [{"recipe": f"configs/{name}.py"} for name in ("rope", "alibi")]
    made = {"grid": recipes, "evaluation": {"extensions": "yarn,pi"}}
    rope, alibi = jobs_of(made, tmp_path)
    assert "--evaluate.extensions=yarn,pi" in rope.command
    assert "--evaluate.extensions=none,yarn,pi" in alibi.command
    assert rope.mistakes() == alibi.mistakes() == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data.valid_fraction": 0.0}, "the run kept no documents for it"),
        ({}, "documents have the 257 tokens of the longest window"),
    ],
)
def test_nothing_to_evaluate_on_is_refused_before_the_first_step(fields, message, call, tmp_path):
    evaluation = ["--evaluate=configs/eval.py", "--evaluate.multiples=1,8"]
    out = call("train.py", tmp_path / "run", *evaluation, code=65, **fields)
    assert message in out and "step" not in out.partition(message)[0]
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_sweep_refuses_before_the_first_step_what_it_could_not_evaluate(tmp_path, text):
    fields = TINY | {"data.path": f"{text}/*.txt", "data.cache": str(tmp_path / "cache")}
    content = {"recipe": "configs/rope.py", "grid": [{"seed": 0}], "fields": fields}
    content["evaluation"] = {"multiples": "1,64"}
    (tmp_path / "sweep.py").write_text(f"def get_config():\n    return {content!r}\n")
    out = script(
        "sweep.py", f"--config={tmp_path / 'sweep.py'}", f"--workdir={tmp_path / 's'}", code=65
    )
    assert "ended with 65" in out and "documents have the 2049 tokens" in out
    assert not list((tmp_path / "s").glob("*/metrics.jsonl"))


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


def test_another_text_that_is_not_there_is_refused_before_the_first_step(call, tmp_path):
    words = ["--evaluate=configs/eval.py", "--evaluate.data.source=text"]
    words.append("--evaluate.data.path=/nowhere/*.txt")
    out = call("train.py", tmp_path / "run", *words, code=65)
    assert "nothing matches '/nowhere/*.txt'" in out
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
