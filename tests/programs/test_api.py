"""posenc_jax.train, evaluate and load_run: in threads, and under other settings of jax."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from curves import rows_of
from running import EVALUATION, ROOT, finish

import posenc_jax


def digest_of(workdir):
    return json.loads((workdir / "status.json").read_text())["digest"]


def test_a_run_is_loaded_for_notebooks(whole):
    run = posenc_jax.load_run(whole[0])
    assert run._fields == ("model", "encoding", "config", "tokenizer")
    model, encoding, config, tokenizer = run
    assert encoding.name == "rope" and config.train_length == 32
    logits = model(np.array([list(b"abcd")]), encoding)
    assert logits.shape == (1, 4, 256) and tokenizer.decode([97]) == "a"
    other, *_ = posenc_jax.load_run(whole[0], step=8)
    assert np.any(other(np.array([list(b"abcd")]), encoding) != logits)
    with pytest.raises(Exception, match="no checkpoint of step 5; have:"):
        posenc_jax.load_run(whole[0], step=5)


def test_curves_are_of_one_evaluation_and_the_documented_table_averages_nothing(evaluated, call):
    """With another evaluation of other targets, by an earlier checkpoint too, beside it."""
    before = rows_of(evaluated)
    for more in (["--config.name=few", "--config.last=1"], ["--step=8"]):
        call("eval_extrapolation.py", evaluated, *EVALUATION, *more)
    page = (ROOT / "docs" / "evaluation.md").read_text()
    (line,) = re.findall(r"`posenc_jax\.curves\(\"runs/rope\"\)\.pivot\((.*?)\)` is the", page)
    assert line == 'index=["run", "protocol", "part", "method"], columns="length", values="bpb"'
    index = ["run", "protocol", "part", "method"]
    table = posenc_jax.curves(evaluated).pivot(index=index, columns="length", values="bpb")
    expected = {
        (*(row[name] for name in index), int(row["length"])): float(row["bpb"]) for row in before
    }
    assert table.stack().dropna().to_dict() == pytest.approx(expected) and len(expected) > 20
    few = posenc_jax.curves([evaluated], "few")
    assert set(few.evaluation) == {"few"} and set(few.part) == {""} == set(few.flag)
    assert few.dtypes[["bpb", "scale", "window", "answers"]].eq("float64").all()


def test_a_thread_trains_and_evaluates(run):
    """A notebook may use a thread; only the main thread handles signals."""
    config = posenc_jax.load_run(run).config
    fields = {"multiples": "1,2", "extensions": "none", "wandb.mode": "disabled"}
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(posenc_jax.train, config, run).result() == 0
        rows = threads.submit(posenc_jax.evaluate, run, fields).result()
    assert {row["length"] for row in rows} == {32, 64}


def test_another_default_generator_changes_no_run(program, whole, tmp_path):
    env = {"JAX_DEFAULT_PRNG_IMPL": "rbg"}
    out = finish(program("train.py", tmp_path / "rbg", env=env))
    assert digest_of(tmp_path / "rbg") == digest_of(whole[0])
    assert "warning" not in out
