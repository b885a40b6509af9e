"""Faults injected into runs of the programs; unit/runs damages checkpoints."""

import contextlib
import gc
import json
import shutil
import subprocess
import time

import pytest
from damage import flip
from running import finish

from posenc_jax.runs.metrics import read_metrics

# Where a read fails Orbax leaves an event loop behind, which complains when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True, scope="module")
def collected():
    yield
    gc.collect()


def test_a_place_that_cannot_be_written_is_said_before_the_first_step(call, small_disk):
    (small_disk / "run").mkdir()
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    assert not subprocess.run(remount, capture_output=True).returncode
    out = call("train.py", small_disk / "run", code=74)
    assert "Read-only file system" in out and "parameters" not in out


def test_folders_that_are_written_like_globs_are_folders(call, text, whole, tmp_path):
    run, read = tmp_path / "[x]*" / "run?", tmp_path / "[y]*"
    shutil.copytree(text, read, ignore=shutil.ignore_patterns("cache"))
    (read / "0.txt").rename(tmp_path / "[0].txt")
    words = {"data.path": f"{tmp_path}/[0].txt,{read}", "data.cache": tmp_path / "[z]"}
    call("train.py", run, code=75, stop_at=6, **words)
    out = call("train.py", run, **words)
    assert "resuming at step 6" in out and "done: 12 steps" in out
    digest = json.loads((whole[0] / "status.json").read_text())["digest"]
    assert json.loads((run / "status.json").read_text())["digest"] == digest
    out = call("eval_extrapolation.py", run, "--config.multiples=1,2", "--config.extensions=none")
    assert f"{run}/plots/same_token.png" in out
    moved = shutil.copytree(whole[0], tmp_path / "[w]*")
    assert "already done: 12 steps" in call("train.py", moved)
    for name in ("a\\b", "a**"):
        assert "use a path without" in call("train.py", tmp_path / name, code=74)


@pytest.fixture
def stopped(call, tmp_path):
    """A run with checkpoints of steps 4 and 8, stopped."""
    call("train.py", tmp_path / "run", code=75, stop_at=8)
    return tmp_path / "run"


def test_a_run_with_a_damaged_checkpoint_ends_as_if_nothing_was(call, stopped, whole):
    files = [path for path in (stopped / "checkpoints" / "8").rglob("*") if path.is_file()]
    flip(max(files, key=lambda path: path.stat().st_size))
    out = call("train.py", stopped)
    assert "warning: checkpoint 8: " in out and "resuming at step 4" in out
    one, other = (
        json.loads((run / "status.json").read_text())["digest"] for run in (stopped, whole[0])
    )
    assert one == other
    steps = [line["step"] for line in read_metrics(stopped / "metrics.jsonl")]
    assert steps == [3, 5, 6, 9, 10, 12]
    assert [p.name for p in (stopped / "checkpoints" / "quarantine").iterdir()] == ["8"]


def test_a_run_without_a_whole_checkpoint_does_not_restart(call, stopped):
    for path in stopped.glob("checkpoints/*/state/**/*"):
        if path.is_file() and path.stat().st_size > 1_000:
            flip(path)
    lines = (stopped / "metrics.jsonl").read_text()
    for _ in range(2):  # the second time they lie in quarantine
        out = call("train.py", stopped, code=74)
        assert "no checkpoint of" in out and "Training did not restart" in out
    assert sorted(p.name for p in (stopped / "checkpoints" / "quarantine").iterdir()) == ["4", "8"]
    assert json.loads((stopped / "status.json").read_text())["state"] == "failed"
    shutil.rmtree(stopped / "checkpoints")
    out = call("train.py", stopped, code=74)
    assert "step 8 was saved" in out and "Training did not restart" in out
    assert (stopped / "metrics.jsonl").read_text() == lines


def test_a_full_disk_ends_a_run_and_the_same_command_resumes_it(program, call, small_disk):
    workdir, ballast = small_disk / "run", small_disk / "ballast"
    fields = {"steps": 100_000, "save_every": 20, "log_every": 10, "valid_every": 10**6, "keep": 1}
    process = program("train.py", workdir, **fields)
    while not list(workdir.glob("checkpoints/[0-9]*0")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as filling:
        while filling.write(bytes(4_096)):
            pass
    last = finish(process, 74).splitlines()[-1]
    assert last.startswith("error: ")
    assert "the same command resumes from the last checkpoint" in last
    ballast.unlink()
    end = read_metrics(workdir / "metrics.jsonl")[-1]["step"] + 40
    assert "resuming at step " in call("train.py", workdir, **fields, stop_at=end, code=75)
    steps = [line["step"] for line in read_metrics(workdir / "metrics.jsonl")]
    assert steps == list(range(10, end + 1, 10))
