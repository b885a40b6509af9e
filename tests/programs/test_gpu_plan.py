"""`make gpu`: what fails is kept and the rest goes on, and the same command goes on."""

import json
import os
import subprocess
import sys
import time

import pytest
from running import ROOT

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import kernels, plans, report
from benchmarks.gpu.records import BEGUN, DONE, FAILED, Records
from posenc_jax import extensions, schemes

PART = """
import os, sys, time
from pathlib import Path
from benchmarks.gpu.records import BEGUN, DONE, FAILED, Records
from posenc_jax import extensions, schemes

part, out = sys.argv[1], Path(sys.argv[3].removeprefix("--out="))
records = Records(out)
for name in ("one", "two", "three"):
    key = f"{part}/{name}"
    if key in records.ended():
        continue
    records.add(key, BEGUN)
    if (part, name) == ("kernels", "two"):
        print("it aborts", file=sys.stderr, flush=True)
        os.abort()
    if (part, name) == ("steps", "one"):
        time.sleep(60)
    records.add(key, DONE, value=1.0)
    print(key, flush=True)
"""


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "gpu.jsonl")


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Parts of three measurements: one of kernels aborts, the first of steps never ends."""
    (tmp_path / "fake_part.py").write_text(PART)
    real = subprocess.Popen

    def start(command, **options):
        return real([sys.executable, tmp_path / "fake_part.py", *command[3:]], **options)

    monkeypatch.setattr(command.subprocess, "Popen", start)
    return os.environ | {"PYTHONPATH": str(ROOT)}


def limited(monkeypatch, **limits):
    plan = plans.dataclasses.replace(plans.DRY, limits=limits)
    monkeypatch.setitem(plans.PLANS, "dry", plan)


def test_a_process_that_is_lost_costs_one_measurement(fake, records, monkeypatch):
    limited(monkeypatch, kernels=60)
    assert command.run("kernels", "dry", records, fake, time.monotonic() + 60)
    ended = records.ended()
    assert [ended[f"kernels/{n}"]["state"] for n in ("one", "two", "three")] == [DONE, FAILED, DONE]
    assert "ended with -6" in ended["kernels/two"]["error"]
    assert "it aborts" in ended["kernels/two"]["error"]


def test_a_measurement_that_takes_its_parts_whole_time_has_failed(fake, records, monkeypatch):
    limited(monkeypatch, steps=8)
    assert not command.run("steps", "dry", records, fake, time.monotonic() + 60)
    assert records.ended()["steps/one"]["error"] == "took more than 8 s"


def test_one_that_the_calls_end_cut_off_is_made_by_the_next_call(fake, records, monkeypatch):
    limited(monkeypatch, steps=60)
    assert not command.run("steps", "dry", records, fake, time.monotonic() + command.LEAVE + 8)
    assert records.ended() == {} and records.begun("steps") == ["steps/one"]


def test_a_line_that_a_kill_cut_off_costs_itself_alone(records):
    records.add("a/one", DONE, value=1)
    with records.path.open("a") as file:
        file.write('{"key": "a/two", "sta')
    records.add("a/three", DONE, value=3)
    assert sorted(records.ended()) == ["a/one", "a/three"]


def test_failures_are_repeated_on_request(records):
    records.add("a/one", FAILED, error="x")
    records.add("a/two", DONE, value=1)
    command.forget_failures(records)
    assert list(records.ended()) == ["a/two"]
    assert records.last()["a/one"]["state"] == BEGUN


def test_the_report_holds_every_value_and_every_error(records):
    records.add("machine/device", DONE, device="NVIDIA X", driver="1.2")
    records.add("steps/tiny rope", DONE, tokens_per_s=123_456.7, mfu=0.367)
    records.add("kernels/fire@1024", FAILED, error="Traceback\nUnfit: no | such kernel")
    text = report.render(records)
    assert "device NVIDIA X, driver 1.2" in text
    assert "| tiny rope | 123,457 | 36.7% |" in text
    assert "**fire@1024 failed**: `Unfit: no | such kernel`" in text


def test_a_document_takes_the_report_between_its_marks(records, tmp_path):
    document = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    once = report.include("new", document)
    assert once == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"
    assert report.include("new", once) == once


def test_the_document_of_speed_shows_what_was_measured_last():
    """The committed file of a device, where there is one."""
    document = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    files = sorted((ROOT / "docs" / "results" / "gpu").glob("*.jsonl"))
    shown = "\n\n".join(report.render(Records(path)) for path in files)
    assert report.include(shown or report.NOTHING, document) == document


def test_without_a_gpu_it_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", f"--out={tmp_path}"],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "finds no gpu: cpu" in done.stderr
    assert "GPU=dry make gpu" in done.stderr


@pytest.mark.slow
def test_every_encoding_and_every_extension_of_rope_is_measured():
    """On a CPU no kernel takes them; the plain and the blockwise way are those of a GPU."""
    every = {"kernel_encodings": None, "kernel_extensions": None, "kernel_lengths": (64,)}
    made = kernels.measurements(plans.dataclasses.replace(plans.DRY, **every))
    rope = kernels.built(plans.DRY, "rope", 64)
    extended = {f"rope+{name}@64" for name in extensions.fitting(rope) if name != "none"}
    assert set(made) == {f"{name}@64" for name in schemes.names()} | extended
    for name, measure in made.items():
        values = measure()
        assert values["taken"] == "blockwise" and "needs a GPU" in values["why_not"]
        for way in ("plain", "blockwise"):
            assert max(values[f"{way}_forward_error"], values[f"{way}_gradient_error"]) < 0.03, name


@pytest.mark.slow
def test_all_of_it_runs_on_a_cpu(tmp_path):
    """Every part measures something, nothing fails, and a second call has nothing left to do."""
    words = ["make", "gpu", "GPU=dry", f"OUT={tmp_path}", f"PYTHON={sys.executable}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = Records(tmp_path / "gpu.jsonl").ended()
    assert {key.partition("/")[0] for key in ended} == {"machine", *plans.DRY.limits}
    assert all(record["state"] == DONE for record in ended.values())
    assert ended["determinism/rope float32"]["same"]
    assert ended["seeds/tiny x 2"]["losses_differ"]
    lines = (tmp_path / "gpu.jsonl").read_text().splitlines()
    begun = sum(json.loads(line)["state"] == BEGUN for line in lines)
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    lines = (tmp_path / "gpu.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["state"] == BEGUN for line in lines) == begun
