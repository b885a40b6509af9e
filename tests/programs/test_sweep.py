"""scripts/sweep.py: sweeps of tiny runs are killed, stopped, grown, short of room and refused."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from running import ROOT, TINY

from posenc_jax.runtime import errors
from posenc_jax.sweeping.jobs import jobs_of
from posenc_jax.sweeping.launch import Local, share

SWEEP = """
from posenc_jax.sweeping.grid import axis, product

def get_config():
    return {{
        "recipe": "configs/rope.py",
        "grid": product(axis("recipe", {recipes!r}), axis("seed", range({seeds}))) + {more!r},
        "fields": {fields!r},
        "evaluation": {{"multiples": "1,2", "documents": 4, "extensions": "none,pi"}},
    }}
"""


@pytest.fixture
def program(text, tmp_path):
    """The sweep as its user starts it: (process, everything it says afterwards)."""

    def start(*words, seeds=1, recipes=("configs/rope.py", "configs/alibi.py"), more=(), **fields):
        fields = TINY | {"data.path": f"{text}/*.txt", "data.cache": f"{text}/cache"} | fields
        file = tmp_path / "sweep.py"
        file.write_text(
            SWEEP.format(recipes=list(recipes), seeds=seeds, more=list(more), fields=fields)
        )
        command = [sys.executable, "scripts/sweep.py", f"--config={file}"]
        with (tmp_path / "said.txt").open("w") as output:
            process = subprocess.Popen(
                [*command, f"--workdir={tmp_path / 'runs'}", *words],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

        def wait():
            code = process.wait(timeout=300)
            return code, (tmp_path / "said.txt").read_text()

        return process, wait

    return start


def wait_until(found, process, seconds=120):
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)


def table_of(folder):
    return {path.parent.parent.name: path.read_text() for path in folder.glob("*/eval/curves.csv")}


def test_a_sweep_ends_with_every_curve_and_a_grown_one_adds_what_is_new(program, tmp_path):
    bad = {"recipe": "configs/rope.py", "data.path": "/nowhere/*.txt"}
    _, wait = program("--workers=2", recipes=("configs/rope.py", "configs/alibi.py"), more=[bad])
    code, said = wait()
    assert code == errors.DATA, said
    assert "rope-path=_nowhere_.txt: FAILED" in said and "/nowhere/*.txt" in said
    first = table_of(tmp_path / "runs")
    assert set(first) == {"rope-s0", "alibi-s0"} and all(first.values())
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/config.json")}

    _, wait = program("--workers=2", seeds=2, recipes=("configs/rope.py",))
    code, said = wait()
    assert code == errors.DONE, said
    assert "rope-s0: done already" in said and "done: 2 runs trained" in said
    assert set(table_of(tmp_path / "runs")) == {"rope-s0", "rope-s1", "alibi-s0"}
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


@pytest.mark.slow
def test_whatever_happens_to_a_sweep_its_table_is_the_same(program, small_disk, tmp_path):
    """Two kills, a full disk under one of its jobs, damage to the newest checkpoint of another."""
    fields = {"steps": 1_500, "save_every": 20, "log_every": 50}
    code, said = program("--workers=2", **fields)[1]()
    assert code == errors.DONE, said
    undisturbed = table_of(tmp_path / "runs")
    shutil.move(tmp_path / "runs", tmp_path / "undisturbed")

    rope, alibi = tmp_path / "runs" / "rope-s0", small_disk / "alibi-s0"
    ballast = small_disk / "ballast"
    rope.parent.mkdir()
    alibi.mkdir()
    (rope.parent / "alibi-s0").symlink_to(alibi)
    process, _ = program("--workers=2", **fields)
    wait_until(lambda: newest(rope) and newest(alibi), process)
    kill(process, rope, alibi)

    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while stream.write(bytes(512)):
            pass
    code, said = program("--workers=2", **fields)[1]()
    assert code == errors.IO and "alibi-s0: FAILED" in said and "rope-s0: done" in said, said
    ballast.unlink()
    shutil.rmtree(rope / "eval")

    process, _ = program("--workers=2", **fields)
    at = newest(alibi)
    wait_until(lambda: newest(alibi) > at, process)
    kill(process, alibi)
    damage_newest(alibi)
    code, said = program("--workers=2", **fields)[1]()
    assert code == errors.DONE, said
    assert (alibi / "checkpoints" / "quarantine").is_dir()
    assert len(undisturbed) == 2 and table_of(tmp_path / "runs") == undisturbed


def kill(process, *folders):
    """A sweep dies and its runs with it."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 60
    for folder in folders:
        while json.loads((folder / "status.json").read_text())["state"] == "running":
            assert time.monotonic() < end, "its run goes on without it"
            time.sleep(0.1)


def damage_newest(folder):
    at = newest(folder)
    for file in (folder / "checkpoints" / str(at)).rglob("*"):
        if file.is_file() and file.stat().st_size > 1000:
            file.write_bytes(b"\0" * file.stat().st_size)
    return at


def newest(folder):
    steps = [int(p.name) for p in (folder / "checkpoints").glob("*") if p.name.isdigit()]
    return max(steps, default=0)


def test_a_stopped_sweep_has_saved_its_runs(program, tmp_path):
    process, wait = program(recipes=("configs/rope.py",), steps=100_000, save_every=20)
    wait_until(lambda: newest(tmp_path / "runs" / "rope-s0"), process)
    process.send_signal(signal.SIGTERM)
    code, said = wait()
    assert code == errors.AGAIN and "the same command resumes" in said
    status = json.loads((tmp_path / "runs" / "rope-s0" / "status.json").read_text())
    assert status["state"] == "stopped" and status["saved"] > 0


def test_a_local_command_has_its_own_cores_and_keeps_its_exit_code(tmp_path):
    local = Local(2 if len(os.sched_getaffinity(0)) > 1 else 1)
    code = "import os; print(sorted(os.sched_getaffinity(0))); raise SystemExit(75)"
    log = tmp_path / "run" / "sweep.log"
    task = local.start("run", [sys.executable, "-c", code], log)
    while (ended := task.poll()) is None:
        time.sleep(0.01)
    assert ended == errors.AGAIN
    assert log.read_text() == f"{share(local.cores, 0, local.workers)}\n"


def test_a_sweep_over_many_encodings_has_one_list_for_all(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipes = [{"recipe": f"configs/{name}.py"} for name in ("rope", "alibi")]
    made = {"grid": recipes, "evaluation": {"extensions": "yarn,pi"}}
    rope, alibi = jobs_of(made, tmp_path)
    assert "--evaluate.extensions=yarn,pi" in rope.command
    assert "--evaluate.extensions=none,yarn,pi" in alibi.command
    assert rope.mistakes() == alibi.mistakes() == []
