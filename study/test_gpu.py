"""`make gpu`: failures are kept, the rest continues, and the same command resumes."""

import os
import shutil
import subprocess
import sys
import tarfile
import time

import jax
import jax.numpy as jnp
import pytest
from running import ROOT

from posenc_jax import schemes
from posenc_jax.attention import kernels as attention_kernels
from posenc_jax.runtime.errors import AGAIN
from posenc_jax.runtime.errors import DONE as OK
from study.gpu import __main__ as command
from study.gpu import campaign, dry, kernels
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
    assert taken(records) == AGAIN  # plans wait for a process that has not taken the device
    states = {key: record["state"] for key, record in records.by_key.items()}
    assert states == {"part/one": DONE, "part/two": FAILED, "part/three": DONE}
    calls["two"] = lambda: {"value": 2.0}
    calls["one"] = fails  # not measured again
    assert taken(Records(records.path)) == OK
    assert Records(records.path).by_key["part/two"]["state"] == FAILED
    repeated = Records(records.path)
    assert taken(repeated, again=True) == AGAIN
    assert repeated.by_key["part/two"] == {"state": DONE, "value": 2.0}
    fresh = records.path.with_name("fresh.jsonl")
    assert taken(Records(fresh), seconds=-1) == AGAIN and not fresh.exists()
    assert taken(Records(fresh, records.path)) == OK  # what another lease has measured


def test_what_the_library_waits_for_is_measured_first():
    every = [f"{part}/{n}" for part, (m, _) in command.PARTS.items() for n in m.measurements(False)]
    first = sorted(every, key=command.urgency)[:4]
    assert first[:2] == ["kernels/fox@1024", "kernels/relative@1024"]
    assert all("log-sum" in key for key in first[2:])


def taken(records, seconds=60, again=False):
    return command.measured(records, True, time.monotonic() + seconds, again)


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


@pytest.mark.parametrize("name", ["dape", "fox", "relative", "rope"])
def test_a_kernel_without_a_gradient_is_not_differentiated(name, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(attention_kernels, "CUDNN", "xla")
    shape = 1, 64, 2, 8
    given = [jnp.zeros(shape, jnp.bfloat16)] * 3
    kernel, reason = kernels.kernel_of(kernels.built(name, shape), *given)
    assert (kernel, "not summed" in reason) == (("", True) if name == "dape" else ("cudnn", False))


@pytest.mark.slow
def test_the_campaign_runs_on_a_cpu_and_goes_on_where_it_was(tmp_path, monkeypatch):
    words = ["make", "gpu", f"OUT={tmp_path}", f"PYTHON={sys.executable}"]

    def call(how="dry"):
        done = subprocess.run([*words, f"GPU={how}"], cwd=ROOT, capture_output=True, text=True)
        return done.stdout + done.stderr

    out = call("dry plans")
    assert f"{tmp_path}/gpu.md: 0 failed" in out and "not done" not in out, out
    assert set(Records(tmp_path / "gpu.jsonl").by_key) == {"machine/facts"}
    assert "not done yet; the same command goes on" in call()
    records = Records(tmp_path / "gpu.jsonl").by_key
    assert all(record["state"] == DONE for record in records.values())
    assert {f"kernels/{name}@64" for name in schemes.names()} <= set(records)
    assert records["determinism/rope"]["same"]
    out = call()
    assert f"{tmp_path}/gpu.md: 0 failed" in out and "not done" not in out, out
    assert Records(tmp_path / "gpu.jsonl").by_key == records  # nothing is measured again
    plans = {*campaign.PLANS, "text"}
    assert {path.name for path in tmp_path.glob("*.xz")} == {f"{name}.tar.xz" for name in plans}
    # In another lease, which has the archives and not the weights, nothing is trained again.
    (tmp_path / "done").mkdir()
    (tmp_path / "zoo.tar.xz").rename(tmp_path / "done" / "zoo-1.tar.xz")
    monkeypatch.setattr(campaign, "COMMITTED", tmp_path / "done")
    folder = tmp_path / "runs" / "zoo"
    shutil.rmtree(folder)
    assert campaign.run("zoo", folder.parent, tmp_path, 60, tiny=True) == OK
    assert not list(folder.glob("*/checkpoints")) and len(list(folder.glob("*/eval"))) == dry.JOBS
    with tarfile.open(tmp_path / "zoo.tar.xz") as packed:
        assert len([name for name in packed.getnames() if name.endswith("curves.csv")]) == dry.JOBS
