"""`make gpu`: failures are kept, the rest continues, and the same command resumes."""

import json
import os
import subprocess
import sys

import pytest
from running import ROOT

from posenc_jax import schemes
from study.gpu import __main__ as command
from study.gpu import kernels
from study.gpu.records import BEGUN, DONE, FAILED, Records


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "gpu.jsonl")


def test_a_failure_is_kept_and_the_rest_is_measured(records, monkeypatch):
    def fails():
        raise ValueError("no such kernel")

    calls = {"one": lambda: {"value": 1.0}, "two": fails, "three": lambda: {"value": 3.0}}
    part = type("Part", (), {"measurements": staticmethod(lambda dry: calls)})
    monkeypatch.setattr(command, "PARTS", {"part": (part, "A part.")})
    assert command.measure(records, True, 60, again=False)
    states = {key: record["state"] for key, record in records.by_key.items()}
    assert states == {"part/one": DONE, "part/two": FAILED, "part/three": DONE}
    calls["two"] = lambda: {"value": 2.0}
    calls["one"] = fails  # not measured again
    assert command.measure(Records(records.path), True, 60, again=False)
    assert Records(records.path).by_key["part/two"]["state"] == FAILED
    repeated = Records(records.path)
    assert command.measure(repeated, True, 60, again=True)
    assert repeated.by_key["part/two"] == {"state": DONE, "value": 2.0}
    assert not command.measure(Records(records.path.with_name("x")), True, -1, again=False)


def test_a_killed_measurement_is_a_failure_and_a_cut_line_is_dropped(records):
    records.add("a/one", DONE, value=1)
    records.add("a/two", BEGUN)
    with records.path.open("a") as file:
        file.write('{"key": "a/three", "sta')
    again = Records(records.path)
    assert {key: r["state"] for key, r in again.by_key.items()} == {"a/one": DONE, "a/two": FAILED}
    assert Records(records.path).by_key == again.by_key


def test_the_report_has_values_and_failures(records):
    records.add("machine/facts", DONE, device="NVIDIA X", driver="1.2")
    records.add("steps/tiny rope", DONE, tokens_per_s=123_456.7, mfu=0.367)
    records.add("kernels/fire@1024", FAILED, error="Traceback\nUnfit: no such kernel")
    text = command.render(records)
    assert "device NVIDIA X, driver 1.2" in text
    assert "| tiny rope | 123,457 | 0.367 |" in text
    assert "**fire@1024**: FAILED  Unfit: no such kernel" in text


def test_a_machine_without_a_gpu_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "study.gpu", f"--out={tmp_path}"],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "finds no gpu: cpu" in done.stderr
    assert "GPU=dry make gpu" in done.stderr


def test_an_error_of_a_kernel_is_a_failure(monkeypatch):
    monkeypatch.setattr(kernels, "ALLOWED", 0.0)
    monkeypatch.setattr(kernels, "LEAST", 0.0)
    with pytest.raises(AssertionError, match="blockwise: error"):
        kernels.measure("rope", (1, 64, 2, 8), 0.0)


@pytest.mark.slow
def test_everything_runs_on_a_cpu_and_a_second_call_measures_nothing(tmp_path):
    words = ["make", "gpu", "GPU=dry", f"OUT={tmp_path}", f"PYTHON={sys.executable}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    by_key = Records(tmp_path / "gpu.jsonl").by_key
    assert all(record["state"] == DONE for record in by_key.values())
    assert {f"kernels/{name}@64" for name in schemes.names()} <= set(by_key)
    assert by_key["determinism/rope"]["same"]

    def begun():
        lines = (tmp_path / "gpu.jsonl").read_text().split("\n")
        return sum(json.loads(line)["state"] == BEGUN for line in lines if line)

    before = begun()
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    assert begun() == before
