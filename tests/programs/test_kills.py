"""Kills and signals at random and at exact places; what is left behind, and how a run goes on."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from running import ROOT, finish

from posenc_jax.data.sources.text import Source
from posenc_jax.runs.checkpoints import Checkpoints
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.training import loop

LONGER = {"steps": 60, "save_every": 4, "log_every": 1, "valid_every": 7}


@pytest.fixture(scope="session")
def longer(program, tmp_path_factory):
    """The digest of a run that nobody killed."""
    workdir = tmp_path_factory.mktemp("longer") / "run"
    finish(program("train.py", workdir, **LONGER))
    return json.loads((workdir / "status.json").read_text())["digest"]


def kill_until_done(program, workdir, rng, kills):
    """The same command again after each kill -9, at a random moment after a random step."""
    codes = []
    for _ in range(kills):
        process = program("train.py", workdir, **LONGER)
        after = rng.integers(1, 40)
        while process.poll() is None:
            path = workdir / "metrics.jsonl"
            steps_made = [line["step"] for line in read_metrics(path)] if path.exists() else []
            if steps_made and steps_made[-1] >= after:
                time.sleep(rng.uniform(0, 0.15))
                process.kill()
            time.sleep(0.005)
        process.communicate()
        codes.append(process.returncode)
    assert -signal.SIGKILL in codes
    finish(program("train.py", workdir, **LONGER))


def check_end(workdir, digest):
    status = json.loads((workdir / "status.json").read_text())
    assert (status["state"], status["digest"]) == ("done", digest)
    assert [line["step"] for line in read_metrics(workdir / "metrics.jsonl")] == list(range(1, 61))
    assert {p.name for p in (workdir / "checkpoints").iterdir()} == {"56", "60"}
    assert not (workdir / "checkpoints" / "quarantine").exists()
    assert [p.name for p in workdir.iterdir() if p.name.startswith(".")] == [".lock"]


def test_killed_at_random_it_ends_the_same(program, longer, tmp_path):
    kill_until_done(program, tmp_path / "run", np.random.default_rng(0), kills=2)
    check_end(tmp_path / "run", longer)


# Each ends the process by kill -9 at one exact place of a run, by code put around the real one.
PLACES = {
    "in the middle of a write": """
        import threading, time
        def watch():
            while not any(p.is_file() for p in folder.glob("*.orbax-checkpoint-tmp*/**/*")):
                time.sleep(0.0005)
            end()
        threading.Thread(target=watch, daemon=True).start()
    """,
    "between write and rename": """
        real = os.rename
        def rename(old, new, **options):
            end() if "orbax-checkpoint-tmp" in str(old) else real(old, new, **options)
        os.rename = rename
    """,
    "in the middle of retention": """
        real = shutil.rmtree
        def rmtree(path, *words, **options):
            if str(path).startswith(str(folder)) and pathlib.Path(path).name.isdigit():
                next(p for p in pathlib.Path(path).rglob("*") if p.is_file()).unlink()
                end()
            real(path, *words, **options)
        shutil.rmtree = rmtree
    """,
    "between a status and its place": """
        real = pathlib.Path.replace
        def replace(self, target):
            end() if "status.json" in str(target) else real(self, target)
        pathlib.Path.replace = replace
    """,
}
AROUND = """
import os, pathlib, runpy, shutil, signal, sys
sys.path.insert(0, os.getcwd())
folder = pathlib.Path(next(w for w in sys.argv if w.startswith("--workdir=")).partition("=")[2])
folder = folder.absolute() / "checkpoints"
def end():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_killed_at_exact_places_it_ends_the_same(command, program, longer, tmp_path):
    """At one after the other of the places, in one run."""
    workdir = tmp_path / "run"
    words = command("train.py", workdir, **LONGER)
    for place, code in PLACES.items():
        script = AROUND + textwrap.dedent(code) + 'runpy.run_path("train.py", run_name="__main__")'
        process = subprocess.run(
            [sys.executable, "-c", script, *words[1:]],
            cwd=ROOT,
            env=os.environ | {"NPROC": "1"},
            capture_output=True,
            text=True,
        )
        assert process.returncode == -signal.SIGKILL, (place, process.stdout, process.stderr)
        if "write" in place:
            assert list(workdir.glob("checkpoints/*tmp*")), place
    finish(program("train.py", workdir, **LONGER))
    check_end(workdir, longer)


def terminated_before(real, at=lambda *words: True):
    """The same function, before whose first call at that place the process gets SIGTERM."""

    def interrupted(*words, **options):
        if at(*words):
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*words, **options)

    return interrupted


def test_a_signal_inside_a_save_saves(call, tmp_path, monkeypatch):
    save = terminated_before(Checkpoints.save, lambda manager, step, *words: step == 4)
    monkeypatch.setattr(Checkpoints, "save", save)
    out = call("train.py", tmp_path / "run", code=75)
    assert "stopped by SIGTERM: saved step 4" in out
    assert Checkpoints(tmp_path / "run", read_only=True).steps() == [4]


def test_a_signal_while_the_step_is_compiled_is_heard_after_it(call, tmp_path, monkeypatch):
    real = loop.train_step
    monkeypatch.setattr(loop, "train_step", lambda *words: terminated_before(real(*words)))
    out = call("train.py", tmp_path / "run", code=75)
    assert "stopped by SIGTERM: saved step 1;" in out
    assert Checkpoints(tmp_path / "run", read_only=True).steps() == [1]


@pytest.mark.parametrize("name", ["train.py", "eval_extrapolation.py"])
def test_a_signal_while_text_is_made_into_tokens_is_heard(name, call, run, tmp_path, monkeypatch):
    monkeypatch.setattr(Source, "documents", terminated_before(Source.documents))
    (tmp_path / "a.txt").write_text("never seen before " * 40)
    fields = {"data.path": str(tmp_path / "a.txt"), "data.cache": str(tmp_path / "cache")}
    words = ["--config.data.source=text", f"--config.data.path={tmp_path}/a.txt"]
    if name == "train.py":
        run, words = tmp_path / "new", []
    out = call(name, run, *words, code=75, **fields)
    assert "stopped by SIGTERM during tokenization" in out
