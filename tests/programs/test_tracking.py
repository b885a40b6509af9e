"""wandb refuses, breaks or dies: the run does not care, unless it was told to."""

import json
import os
import signal
import subprocess
import time

import pytest
from running import finish

from posenc_jax.runs.metrics import read_metrics


class Wandb:
    """A run of wandb that breaks at its n-th call."""

    def __init__(self, calls):
        self.calls, self.summary = calls, {}
        self.url = self.dir = None

    def define_metric(self, *words, **options):
        pass

    def log(self, values):
        self.calls -= 1
        if self.calls < 0:
            raise BrokenPipeError("the service is gone")

    def finish(self, **options):
        self.log({})


@pytest.mark.parametrize("calls", [0, 3, 6])
def test_wandb_may_break_at_any_call(calls, call, tmp_path, monkeypatch):
    import wandb

    call("train.py", tmp_path / "without")
    monkeypatch.setattr(wandb, "init", lambda **options: Wandb(calls))
    fields = {"wandb.mode": "online"}
    out = call("train.py", tmp_path / "with", **fields)
    assert out.count("wandb failed and is off from here") == 1
    one, other = (
        (
            json.loads((tmp_path / name / "status.json").read_text())["digest"],
            [line["step"] for line in read_metrics(tmp_path / name / "metrics.jsonl")],
        )
        for name in ("without", "with")
    )
    assert one == other
    monkeypatch.setattr(wandb, "init", lambda **options: Wandb(calls))
    out = call("train.py", tmp_path / "required", code=74, **fields | {"wandb.required": True})
    assert "wandb failed and wandb.required is set: the service is gone" in out


@pytest.fixture
def services():
    """Process numbers of wandb's own processes below one."""

    def below(process):
        listed = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True)
        rows = [line.split(None, 2) for line in listed.stdout.splitlines()[1:]]
        return [
            int(pid) for pid, parent, name in rows if int(parent) == process.pid and "wandb" in name
        ]

    return below


@pytest.mark.slow
def test_wandb_may_be_killed_from_outside(program, services, whole, tmp_path):
    process = program("train.py", tmp_path / "run", **{"wandb.mode": "offline", "steps": 3_000})
    metrics, seen = tmp_path / "run" / "metrics.jsonl", []
    while not seen or not metrics.exists() or not read_metrics(metrics):
        assert process.poll() is None, process.communicate()[0]
        seen = services(process)
        time.sleep(0.02)
    os.kill(seen[0], signal.SIGKILL)
    while (last := read_metrics(metrics)[-1]["step"]) < 60:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out = finish(process, 75)
    assert out.count("wandb failed and is off from here") == 1 and "Traceback" not in out
    lines = [line["step"] for line in read_metrics(metrics)]
    assert lines == sorted(set(lines)) and lines[-1] >= last
    assert set(range(3, lines[-1], 3)) <= set(lines)


@pytest.mark.slow
def test_wandb_may_be_unreachable(program, whole, tmp_path):
    """With a key and no host that answers; it takes the half minute that is waited for."""
    env = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "a" * 40}
    out = finish(program("train.py", tmp_path / "run", env=env, **{"wandb.mode": "auto"}))
    assert out.count("wandb failed and is off from here") == 1
    name = "status.json"
    same = [
        json.loads((place / name).read_text())["digest"] for place in (whole[0], tmp_path / "run")
    ]
    assert same[0] == same[1]
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 6
