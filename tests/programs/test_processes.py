"""Several processes that train or evaluate one model over gloo, each with one device."""

import json
import os
import shutil
import signal
import socket
import time
from contextlib import closing

import jax
import pytest
from curves import assert_equal_evaluations, rows_of
from running import finish, python

from posenc_jax.runs.checkpoints import PARAMETERS, Checkpoints
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.runs.subject import load

BF16 = jax.numpy.bfloat16


@pytest.fixture
def start(program):
    """Two processes of one program; `other` is what the second is told besides."""
    started = []

    def begin(workdir, *words, other=None, name="train.py", **fields):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        both = [
            program(
                name,
                workdir,
                *words,
                env={
                    "JAX_COORDINATOR_ADDRESS": address,
                    "JAX_NUM_PROCESSES": "2",
                    "JAX_PROCESS_ID": str(number),
                },
                distributed=True,
                **(fields | other if number and other else fields),
            )
            for number in range(2)
        ]
        started.extend(both)
        return both

    yield begin
    for process in started:  # a failed test leaves none behind
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def one_process(program):
    def run(workdir, **fields):
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
        finish(program("train.py", workdir, env={"XLA_FLAGS": flags}, **fields))
        return digest(workdir)

    return run


def end(running, number, sent):
    """A signal to one of two processes ends both at once, with the reason."""
    running[number].send_signal(sent)
    began = time.monotonic()
    if sent == signal.SIGTERM:
        said = finish(running[0], 75)
        finish(running[1], 75)
        assert ("SIGTERM" if number == 0 else "a signal to another process") in said
    else:
        survivor, killed = running[1 - number], running[number]
        assert_ended_by_jax(survivor, survivor.communicate()[0])
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
    assert time.monotonic() - began < 20


def assert_ended_by_jax(process, out):
    """A collective that fails, or jax's notice that another process is dead."""
    assert process.returncode not in (0, 75)
    reasons = "the same commands resume from the last save", "another task died"
    assert any(reason in out for reason in reasons), out


def digest(workdir):
    return json.loads((workdir / "status.json").read_text())["digest"]


@pytest.mark.parametrize(
    ("sharding", "stops"),
    [("replicated", [0]), pytest.param("fsdp", [6, 0], marks=pytest.mark.slow)],
)
def test_two_processes_are_one_with_two_devices(sharding, stops, start, one_process, tmp_path):
    """Bit for bit; one of them writes, and speaks."""
    for stop_at in stops:
        code = 75 if stop_at else 0
        lead, other = start(tmp_path / "two", stop_at=stop_at, sharding=sharding)
        said, silent = finish(lead, code), finish(other, code)
        assert "2 x cpu" in said and "step" not in silent
    assert ("resuming at step 6" in said) == (len(stops) == 2)
    assert digest(tmp_path / "two") == one_process(tmp_path / "one", sharding=sharding)
    pairs = zip(
        *(read_metrics(tmp_path / name / "metrics.jsonl") for name in ("two", "one")), strict=True
    )
    assert all(two["loss"] == one["loss"] for two, one in pairs if "loss" in one)


LONG = {"steps": 100_000, "save_every": 20, "log_every": 1, "valid_every": 100_000}


def wait_for_step(workdir, step, running):
    path = workdir / "metrics.jsonl"
    while not path.exists() or not any(line["step"] >= step for line in read_metrics(path)):
        assert all(process.poll() is None for process in running), running[0].communicate()[0]
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_failure_of_one_process_ends_both(sent, number, start, tmp_path):
    """A signal saves in both at one step; a death is noticed at once, and costs an interval."""
    running = start(tmp_path / "two", **LONG)
    wait_for_step(tmp_path / "two", 41, running)  # a save waits for the one before
    end(running, number, sent)
    saved = max(
        int(p.name) for p in (tmp_path / "two" / "checkpoints").iterdir() if p.name.isdigit()
    )
    assert saved >= 20
    for process in start(tmp_path / "two", **LONG, stop_at=saved + 5):
        finish(process, 75)


def test_a_process_that_cannot_begin_ends_both(start, tmp_path):
    from posenc_jax.runtime.files import locked

    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run", "another training run"):
        lead, other = start(tmp_path / "run")
        began = time.monotonic()
        assert f"process {os.getpid()} on " in finish(lead, 73)
        assert_ended_by_jax(other, other.communicate()[0])
        assert time.monotonic() - began < 60


def test_incomplete_process_settings_are_refused():
    """In a process whose devices are not in use yet."""
    code = """
import os, sys
sys.path[:0] = ['tests', '.']
from posenc_jax.config import load
from configs import base
from posenc_jax.runs.processes import SETTINGS, joined
config = base.get_config()
config.distributed = True
for words in '', '-', '- - 0', 'a:1 2 2', 'a:1 two 0', 'nonsense 2 0':
    os.environ |= dict(zip(SETTINGS, words.replace('-', '').split(' ')))
    try:
        with joined(load(config)):
            print('joined')
    except Exception as error:
        print(type(error).__name__, error)
"""
    lines = python("-c", code).splitlines()
    assert len(lines) == 6
    for line in lines:
        assert line.startswith("ConfigError distributed=True needs JAX_COORDINATOR_ADDRESS"), line


@pytest.mark.slow
def test_two_processes_take_the_weights_of_a_run_and_go_on(start, one_process, whole, tmp_path):
    """The lead alone reads checkpoints: those weights, and what they were trained on."""
    fields = {"init_from": whole[0]}
    for stop_at, code in ((3, 75), (0, 0)):
        for process in start(tmp_path / "two", stop_at=stop_at, **fields):
            finish(process, code)
    assert digest(tmp_path / "two") == one_process(tmp_path / "one", **fields)
    kept = [(tmp_path / name / "trained_on.txt").read_text() for name in ("two", "one")]
    assert kept[0] == kept[1] != ""


@pytest.mark.slow
def test_two_processes_train_low_rank_parts_beside_weights_of_two_bytes(
    start, one_process, whole, tmp_path
):
    fields = {"init_from": in_bfloat16(whole[0], tmp_path / "base"), "model.lora": 2}
    for stop_at, code in ((3, 75), (0, 0)):
        for process in start(tmp_path / "two", stop_at=stop_at, **fields):
            finish(process, code)
    assert digest(tmp_path / "two") == one_process(tmp_path / "one", **fields)


def in_bfloat16(run, folder):
    """A copy of a run whose matrices have two bytes."""
    loaded = load(run)
    params = jax.device_get(loaded.parts.params())
    params["model"] = {n: a.astype(BF16) if a.ndim > 1 else a for n, a in params["model"].items()}
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints"))
    belongs = {n: value for n, value in loaded.card.items() if n not in ("step", "digests")}
    with closing(Checkpoints(folder)) as checkpoints:
        checkpoints.save(loaded.step, {PARAMETERS: params}, belongs)
    return folder


def test_different_commands_are_refused(start, tmp_path):
    """Steps would be waited for that never come, or be taken at two rates."""
    for process in start(tmp_path / "run", other={"stop_at": 6}):
        assert "all processes must be given the same configuration" in finish(process, 2)
    assert not (tmp_path / "run").exists()


EVALUATED = [
    "--config.multiples=0.5,1,2",
    "--config.extensions=none,self_extend",
    "--config.distributed=True",
    "--config.wandb.mode=disabled",
]


def evaluate(start, workdir, *words):
    return start(workdir, *EVALUATED, *words, name="eval_extrapolation.py")


@pytest.mark.slow
def test_two_processes_evaluate_as_one(start, call, run, tmp_path):
    """Also with a window cut over both, or shared weights; one of them writes, and speaks."""
    shutil.copytree(run, tmp_path / "one")
    call("eval_extrapolation.py", tmp_path / "one", *(w for w in EVALUATED if "distr" not in w))
    cut = ["--config.sequence=2", "--config.name=cut"]
    shared = ["--config.sharding=fsdp", "--config.name=shared"]
    for words in ([], cut, shared):
        shutil.rmtree(run / "eval" / "cells", ignore_errors=True)  # all are computed
        lead, other = evaluate(start, run, *words)
        said, silent = finish(lead), finish(other)
        assert "curves.csv" in said and "windows of" in said and "windows of" not in silent
    assert len(rows_of(run)) == 3 * len(rows_of(tmp_path / "one")) > 30
    for name in ("held-out", "cut", "shared"):
        assert_equal_evaluations(tmp_path / "one", run, name)
    assert (run / "plots" / "same_token.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_an_evaluation_of_two_processes_ends_and_resumes(sent, number, start, run):
    """With the reason, in both of them; finished cells stay."""
    small = "--config.tokens_per_call=32"
    running = evaluate(start, run, small)
    while not list(run.glob("eval/cells/[!.]*.npz")):
        assert all(process.poll() is None for process in running), running[0].communicate()[0]
        time.sleep(0.02)
    end(running, number, sent)
    lead, other = evaluate(start, run, small)
    said = finish(lead)
    finish(other)
    assert "cells cached" in said and len(rows_of(run)) > 20
