"""Faults injected into runs of the programs; unit/runs damages checkpoints."""

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from damage import flip
from running import ROOT, finish

from posenc_jax.runs.metrics import read_metrics
from posenc_jax.runtime.files import locked

# Where a read fails Orbax leaves an event loop behind, which complains when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True, scope="module")
def collected():
    yield
    gc.collect()


def test_no_room_for_a_checkpoint_is_said_before_the_first_step(call, small_disk):
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 40_000))
    out = call("train.py", small_disk / "run", code=74)
    assert "no space for a single checkpoint" in out and "MiB are free" in out
    assert "step " not in out.split("error:")[0].split("plan:")[-1]


def test_a_place_that_cannot_be_written_is_said_before_the_first_step(call, small_disk):
    (small_disk / "run").mkdir()
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    assert not subprocess.run(remount, capture_output=True).returncode
    out = call("train.py", small_disk / "run", code=74)
    assert "Read-only file system" in out and "parameters" not in out


@pytest.mark.slow
def test_a_run_resumes_on_another_number_of_devices(program, tmp_path):
    """1, then 4 with everything cut over them, then 2; the losses are those of one device."""

    def losses(workdir, *stops):
        for devices, stop_at, sharding in stops:
            flags = f"--xla_force_host_platform_device_count={devices}"
            env = {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {flags}"}
            fields = {"accumulate": 1, "log_every": 1, "stop_at": stop_at, "sharding": sharding}
            out = finish(program("train.py", workdir, env=env, **fields), 75 if stop_at else 0)
            assert f"{devices} x cpu" in out
        return [line["loss"] for line in read_metrics(workdir / "metrics.jsonl")]

    one = losses(tmp_path / "one", (1, 0, "replicated"))
    stops = (1, 4, "replicated"), (4, 8, "fsdp"), (2, 0, "replicated")
    np.testing.assert_allclose(losses(tmp_path / "many", *stops), one, atol=1e-5)
    assert len(one) == 12 and one[0] != one[-1]


def test_one_training_run_at_a_time(call, tmp_path):
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run", "another training run"):
        out = call("train.py", tmp_path / "run", code=73)
    assert f"in use by another training run: process {os.getpid()} on " in out
    assert not (tmp_path / "run" / "config.json").exists()


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


def test_a_run_without_a_whole_checkpoint_says_so_and_begins_nothing(call, stopped):
    for path in stopped.glob("checkpoints/*/state/**/*"):
        if path.is_file() and path.stat().st_size > 1_000:
            flip(path)
    for _ in range(2):  # the second time they lie in quarantine
        out = call("train.py", stopped, code=74)
        assert "no checkpoint of" in out and "Training did not restart" in out
        assert "step 1" not in out.split("error:")[-1]
    assert sorted(p.name for p in (stopped / "checkpoints" / "quarantine").iterdir()) == ["4", "8"]
    assert json.loads((stopped / "status.json").read_text())["state"] == "failed"


def test_a_run_with_the_checkpoint_of_another_is_refused_and_left_alone(call, stopped, tmp_path):
    call("train.py", tmp_path / "other", code=75, stop_at=8, seed=1)
    shutil.rmtree(stopped / "checkpoints" / "8")
    shutil.copytree(tmp_path / "other" / "checkpoints" / "8", stopped / "checkpoints" / "8")
    out = call("train.py", stopped, code=76)
    assert "seed: 1 in the workdir, 0 now" in out and "init_from" in out
    assert sorted(p.name for p in (stopped / "checkpoints").iterdir()) == ["4", "8"]
    assert not (stopped / "checkpoints" / "quarantine").exists()


@pytest.mark.parametrize(
    ("name", "content", "fields", "said"),
    [
        ("none/*.txt", None, {}, "nothing matches"),
        ("empty.txt", b"", {}, "no text to train on"),
        ("short.txt", b"too short", {}, "tokens: too few for one row of 32"),
        ("a.jsonl", b'{"text": "a"}\n{"text"\n', {"data.source": "jsonl"}, "a.jsonl, line 2"),
        ("a.txt", b"abc\xff" * 99, {"data.tokenizer": "{learned}"}, "not UTF-8 at byte 3"),
        ("a.txt", b"abc\xff" * 99, {}, ""),  # bytes are taken as they are
    ],
)
def test_data_that_will_not_do_is_named(name, content, fields, said, call, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    if "data.tokenizer" in fields:
        tokenizers = pytest.importorskip("tokenizers")
        learned = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1, "c": 2}, []))
        learned.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        learned.decoder = tokenizers.decoders.ByteLevel()
        learned.save(str(tmp_path / "learned.json"))
        fields = {"data.tokenizer": tmp_path / "learned.json"}
    place = {"data.path": tmp_path / name, "data.cache": tmp_path / "cache"}
    place["data.valid_fraction"] = 0
    out = call("train.py", tmp_path / "run", code=65 if said else 0, **place, **fields)
    assert said in out and "Traceback" not in out


def test_missing_checkpoints_never_restart_a_run(call, stopped):
    lines = (stopped / "metrics.jsonl").read_text()
    shutil.rmtree(stopped / "checkpoints")
    out = call("train.py", stopped, code=74)
    assert "step 8 was saved" in out and "Training did not restart" in out
    assert (stopped / "metrics.jsonl").read_text() == lines
    call("train.py", stopped, code=74)


def test_a_full_disk_ends_a_run_and_the_same_command_resumes_it(command, small_disk, tmp_path):
    workdir, ballast, output = small_disk / "run", small_disk / "ballast", tmp_path / "output"
    fields = {"steps": 100_000, "save_every": 20, "log_every": 1, "keep": 1}

    def start(stream):
        return subprocess.Popen(
            [sys.executable, *command("train.py", workdir, **fields)],
            cwd=ROOT,
            env=os.environ | {"NPROC": "1"},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )

    def wait_for(process, condition):
        while not condition():
            assert process.poll() is None, output.read_text()
            time.sleep(0.02)

    def steps():
        return [line["step"] for line in read_metrics(workdir / "metrics.jsonl")]

    with output.open("w") as stream:
        process = start(stream)
        wait_for(process, lambda: list(workdir.glob("checkpoints/[0-9]*0")))
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as filling:
            while filling.write(bytes(4_096)):
                pass
        assert process.wait(timeout=120) == 74, output.read_text()
    last = output.read_text().splitlines()[-1]
    assert (
        last.startswith("error: ") and "the same command resumes from the last checkpoint" in last
    )
    ballast.unlink()
    end = steps()[-1]
    with output.open("w") as stream:
        process = start(stream)
        wait_for(process, lambda: steps()[-1:] > [end + 40])
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 75, output.read_text()
    assert "resuming at step " in output.read_text()
    assert steps() == list(range(1, steps()[-1] + 1))
