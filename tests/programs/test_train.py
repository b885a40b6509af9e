"""train.py from outside, as a user runs it."""

import json
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from running import finish

import posenc_jax
from posenc_jax.runs.metrics import read_metrics


def status(workdir):
    return json.loads((Path(workdir) / "status.json").read_text())


def test_a_run_leaves_what_was_promised(whole):
    workdir, out = whole
    assert status(workdir)["state"] == "done" and status(workdir)["code"] == 0
    assert f"done: 12 steps; digest {status(workdir)['digest']}" in out
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert {p.name for p in (workdir / "checkpoints").iterdir()} == {"8", "12"}  # `keep` of them
    assert [r["step"] for r in lines] == [3, 5, 6, 9, 10, 12]  # every step once
    assert [r["step"] for r in lines if "loss" in r] == [3, 6, 9, 12]
    assert [r["step"] for r in lines if "valid_loss" in r] == [5, 10, 12]
    epochs = float(re.search(r"\(([\d.]+) epochs\)", out)[1])
    assert 12 / 10 < epochs < 12 / 9  # one ends with step 9
    for word in ("a fresh run", "total", "documents held out", "12 steps of 4 x 32", "jax 0."):
        assert word in out
    told = status(workdir)
    assert told["command"].startswith("train.py --config=configs/rope.py --config.")
    assert told["data"]["held_out"] > 0 and f"data {told['data']['fingerprint'][:16]}: " in out
    speeds = [r["tokens_per_second"] for r in lines if "loss" in r]
    assert told["speed"] == np.median(speeds[1:])
    log = (workdir / "log.txt").read_text()
    assert "a fresh run" in log and log in out.replace("\r", "\n")


def test_a_run_that_is_done_takes_another_label(whole, call, tmp_path):
    run = shutil.copytree(whole[0], tmp_path / "run")
    for label in ("RoPE", "RoPE, again"):
        out = call("train.py", run, label=label)
        assert f"already done: 12 steps; digest {status(whole[0])['digest']}" in out
        assert json.loads((run / "config.json").read_text())["label"] == label
    assert status(run)["digest"] == status(whole[0])["digest"]


def test_logging_saving_and_validation_change_no_digest(program, whole, tmp_path):
    often = {"log_every": 1, "save_every": 1, "valid_every": 1, "valid_batches": 1}
    finish(program("train.py", tmp_path / "run", **often))
    assert status(tmp_path / "run")["digest"] == status(whole[0])["digest"]


def test_a_signal_saves_and_exits_with_75(program, call, tmp_path):
    workdir = tmp_path / "run"
    process = program("train.py", workdir, steps=1_000_000, save_every=400)
    while not (workdir / "metrics.jsonl").exists() or not (workdir / "metrics.jsonl").read_text():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    words = ["--config.multiples=1", "--config.extensions=none"]
    while not any(p.name.isdigit() for p in workdir.glob("checkpoints/*")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    call("eval_extrapolation.py", workdir, *words)  # of a run that goes on meanwhile
    assert (workdir / "eval" / "curves.csv").exists()
    process.send_signal(signal.SIGTERM)
    out = finish(process, 75)
    assert "stopped by SIGTERM: saved step" in out
    at = status(workdir)["step"]
    assert status(workdir)["code"] == 75
    assert f"resuming at step {at:,}" in finish(program("train.py", workdir, steps=at + 1))


def test_a_run_cannot_end_before_where_it_is(call, whole):
    before = status(whole[0])
    out = call("train.py", whole[0], steps=5, code=2)
    assert "steps = 5 is below the checkpoint of step 12" in out and status(whole[0]) == before


def test_a_step_that_is_not_finite_ends_the_run_and_is_not_saved(call, tmp_path):
    workdir = tmp_path / "run"
    fields = {"learning_rate": 1e30, "warmup_steps": 0, "save_every": 1, "log_every": 100}
    out = call("train.py", workdir, **fields, code=70)
    assert "is not finite" in out
    assert status(workdir)["state"] == "failed" and "is not finite" in status(workdir)["reason"]
    bad = int(re.search(r"step (\d+) is not finite", out)[1])
    saved = [int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit()]
    assert max(saved) < bad
    assert "The last finite losses: " in out and f"(step {bad - 1})" in out


def test_a_model_is_fine_tuned_at_a_longer_length(call, whole, tmp_path):
    workdir = tmp_path / "longer"
    fields = {"train_length": 64, "init_from": whole[0], "extension.scale": 2.0, "steps": 3}
    fields["extension.beta_fast"] = 16.0
    source = tmp_path / "source"
    shutil.copytree(whole[0], source)
    fields["init_from"] = source
    out = call("train.py", workdir, config="finetune", **fields)
    assert f"weights from {source}" in out
    shutil.rmtree(source)  # a run that goes on needs it no more
    out = call("train.py", workdir, config="finetune", **fields)
    assert "already done" in out
    _, encoding, config, _ = posenc_jax.load_run(workdir)
    assert config.original_length == 32 and encoding.train_length == 32
    plain = posenc_jax.load_run(whole[0])[1]
    expected = posenc_jax.extend("yarn", plain, 2.0, beta_fast=16.0)
    np.testing.assert_array_equal(encoding.inv_freq, expected.inv_freq)
    np.testing.assert_array_equal(encoding.gain, expected.gain)


@pytest.mark.slow
def test_a_resampled_table_is_fine_tuned_and_evaluated(call, tmp_path):
    source, workdir = tmp_path / "learned", tmp_path / "longer"
    call("train.py", source, config="learned", steps=3)
    fields = {"train_length": 64, "init_from": source, "steps": 3, "extension.scale": 2.0}
    fields["extension.name"] = "interpolate"
    call("train.py", workdir, config="learned", **fields)
    out = call("eval_extrapolation.py", workdir, "--config.multiples=0.5,1")
    names = {line.split()[0] for line in out.splitlines() if re.match(r"[a-z]+ +[0-9]", line)}
    assert names == {"none", "window"}


def test_a_smoke_test_of_five_steps_runs_with_the_usual_warm_up(call, tmp_path):
    out = call("train.py", tmp_path / "run", steps=5, warmup_steps=60)
    assert "warm-up shortened to 1 step, a tenth (warmup_steps = 60)" in out
    assert "done: 5 steps" in out


def test_the_steps_of_a_profile_are_traced(call, whole, tmp_path):
    from jax.profiler import ProfileData

    run = tmp_path / "run"
    call("train.py", run, profile="4,6", stop_at=5, code=75)  # as far as it goes
    call("train.py", run, profile="4,6")
    assert status(run)["digest"] == status(whole[0])["digest"]
    traced = []
    for path in sorted(run.glob("profile/plugins/profile/*/*.xplane.pb")):
        planes = ProfileData.from_file(str(path)).planes
        events = [event for plane in planes for line in plane.lines for event in line.events]
        traced.append([dict(event.stats)["step_num"] for event in events if event.name == "train"])
    assert traced == [[4, 5], [6]]
    shutil.rmtree(run / "profile")
    call("train.py", run, profile="4,6")  # it is done


def test_a_run_of_muon_resumes_and_refuses_adamw(call, whole, tmp_path):
    call("train.py", tmp_path / "whole", optimizer="muon")
    call("train.py", tmp_path / "run", optimizer="muon", stop_at=6, code=75)
    assert "optimizer: 'muon' in the workdir" in call("train.py", tmp_path / "run", code=76)
    out = call("train.py", tmp_path / "run", optimizer="muon")
    assert "resuming at step 6" in out
    one, other = status(tmp_path / "whole"), status(tmp_path / "run")
    assert one["digest"] == other["digest"] != status(whole[0])["digest"]


def test_a_run_annealed_from_a_longer_one_is_the_run_of_its_own_budget(call, tmp_path):
    """12 steps that go on from step 8 of 30 have the weights, metrics and rows of 12 steps."""
    fields = {"schedule": "linear", "warmup_steps": 1}
    call("train.py", tmp_path / "own", **fields)
    call("train.py", tmp_path / "trunk", steps=30, keep=9, **fields)
    annealed = fields | {"anneal": tmp_path / "trunk"}
    out = call("train.py", tmp_path / "annealed", stop_at=10, **annealed, code=75)
    assert "resuming at step 8" in out
    call("train.py", tmp_path / "annealed", **annealed)
    names = ("step", "loss", "valid_loss", "learning_rate")
    own, other = (
        [
            [line.get(name) for name in names]
            for line in read_metrics(tmp_path / run / "metrics.jsonl")
        ]
        for run in ("own", "annealed")
    )
    assert own == other
    assert status(tmp_path / "own")["digest"] == status(tmp_path / "annealed")["digest"]
    out = call("train.py", tmp_path / "other", **annealed, seed=1, code=76)
    assert "a run that differs in steps alone" in out and "seed: 0 in " in out
    out = call("train.py", tmp_path / "early", **annealed, steps=4, code=74)
    assert "no checkpoint of step 3 or before; have: [4, 8, 12" in out
    slow = {"schedule": "linear", "warmup_steps": 3}
    call("train.py", tmp_path / "slow", steps=30, stop_at=4, **slow, code=75)
    out = call("train.py", tmp_path / "warm", anneal=tmp_path / "slow", **slow, code=2)
    assert "warms up over 3 steps and this run over 1" in out
    out = call("train.py", tmp_path / "cosine", anneal=tmp_path / "trunk", code=2)
    assert "anneal goes with schedule=linear" in out
