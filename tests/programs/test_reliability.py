"""What is tried against a run: damage, foreign files, other processes. See docs/reliability.md."""

import contextlib
import gc
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import ROOT, finish

from posenc_jax.errors import OtherConfig, Stop
from posenc_jax.files import locked
from posenc_jax.runs.checkpoints import Checkpoints, total_digest
from posenc_jax.runs.metrics import Metrics, read_metrics

# Where a read fails Orbax leaves an event loop behind, which complains when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
BELONGS = {"data": "abc", "config": {"seed": 0}}


def state_at(step):
    """A few arrays of several types, different at every step."""
    key = jax.random.key(step)
    return {
        "params": {"a": jax.random.normal(key, (3, 5)), "b": jnp.arange(7.0) + step},
        "step": jnp.int32(step),
    }


@pytest.fixture(autouse=True)
def collected():
    yield
    gc.collect()


@pytest.fixture
def saved(tmp_path):
    """A workdir with checkpoints of steps 1 and 2, closed."""
    manager = Checkpoints(tmp_path / "run", keep=3)
    for step in (1, 2):
        manager.save(step, state_at(step), BELONGS)
    manager.close()
    return tmp_path / "run"


def newest_files(workdir):
    folder = workdir / "checkpoints" / "2"
    return sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())


def restore_last(workdir, accept=lambda step, card: None):
    manager = Checkpoints(workdir, keep=3)
    try:
        found = manager.restore_last(state_at(0), accept)
        if found is not None:  # later saves are unharmed
            manager.save(found[0] + 1, state_at(found[0] + 1), BELONGS)
            assert manager.steps()[-1] == found[0] + 1
            assert total_digest(manager.restore(found[0] + 1, state_at(0))) == total_digest(
                state_at(found[0] + 1)
            )
        return found
    finally:
        manager.close()


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path, bit=None):
    data = bytearray(path.read_bytes())
    bit = 8 * (len(data) // 2) + 3 if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def delete(path):
    path.unlink()


@pytest.mark.parametrize("damage", [truncate, empty, delete, flip])
def test_damage_to_any_file_costs_one_interval_at_most(damage, saved, tmp_path, capsys):
    """The one before is used, or the newest where the file does not matter; never wrong numbers."""
    used = []
    for file in newest_files(saved):
        copy = tmp_path / "copy"
        shutil.copytree(saved, copy)
        damage(copy / "checkpoints" / "2" / file)
        step, state = restore_last(copy)
        assert total_digest(state) == total_digest(state_at(step))
        moved = (
            [p.name for p in (copy / "checkpoints" / "quarantine").iterdir()] if step == 1 else []
        )
        said = capsys.readouterr().err
        assert (moved == ["2"] and "warning: checkpoint 2: " in said) if step == 1 else not said
        used.append(step)
        shutil.rmtree(copy)
    assert used.count(1) >= 3 and len(used) > 10  # data, and both cards


@pytest.mark.slow
def test_every_flipped_bit_is_caught_or_does_not_matter(saved, capsys):
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of reads that fail, as they should
    tried = caught = 0
    expected = total_digest(state_at(2))
    wrong = []
    for file in newest_files(saved):
        path = saved / "checkpoints" / "2" / file
        whole = path.read_bytes()
        for bit in range(8 * len(whole)):
            flip(path, bit)
            manager = Checkpoints(saved, read_only=True)
            try:
                if total_digest(manager.restore(2, state_at(0))) != expected:
                    wrong.append((str(file), bit, "other numbers"))
            except Stop:
                caught += 1
            except Exception as error:
                wrong.append((str(file), bit, repr(error)[:200]))
            finally:
                manager.close()
            tried += 1
            path.write_bytes(whole)
    with capsys.disabled():
        print(f"\n{tried} bits flipped, {caught} caught, none of the others changed a number")
    assert not wrong, wrong[:20]
    assert tried > 1_000 and caught > 0


def test_nothing_is_begun_anew_where_all_is_damaged(saved):
    for step in (1, 2):
        shutil.rmtree(saved / "checkpoints" / str(step) / "state")
    for _ in range(2):  # the second time there is no checkpoint left, only the quarantine
        with pytest.raises(
            Stop, match="no checkpoint of .* can be read; .* Nothing was started anew"
        ):
            restore_last(saved)
    assert {p.name for p in (saved / "checkpoints" / "quarantine").iterdir()} == {"1", "2"}


def test_a_foreign_checkpoint_is_refused_and_stays(saved):
    def accept(step, card):
        raise OtherConfig("of another run")

    with pytest.raises(OtherConfig):
        restore_last(saved, accept)
    manager = Checkpoints(saved)
    with pytest.raises(OtherConfig, match=r"missing: \['params.c'\]"):
        manager.restore_last(state_at(0) | {"params": {"c": jnp.zeros(1)}}, lambda step, card: None)
    manager.close()
    assert not (saved / "checkpoints" / "quarantine").exists()


def test_a_machine_without_memory_or_permission_damages_nothing(saved, monkeypatch):
    manager = Checkpoints(saved)
    for error in (MemoryError(), PermissionError(13, "no"), ValueError("RESOURCE_EXHAUSTED: x")):

        def fail(*words, error=error, **options):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(manager.manager, "restore", fail)
            with pytest.raises(type(error)):
                manager.restore_last(state_at(0), lambda step, card: None)
    manager.close()
    assert not (saved / "checkpoints" / "quarantine").exists()


def test_an_empty_folder_of_a_step_is_no_checkpoint(saved):
    (saved / "checkpoints" / "9").mkdir()
    step, _ = restore_last(saved)
    assert step == 2


def test_a_card_that_was_edited_is_damage(saved, capsys):
    (path,) = (saved / "checkpoints" / "2" / "card").glob("metadata")
    card = json.loads(path.read_text())
    card["data"] = "another"
    path.write_text(json.dumps(card))
    assert restore_last(saved)[0] == 1
    assert "its card is not what was written" in capsys.readouterr().err


def test_a_full_disk_costs_the_saves_it_cannot_hold(small_disk, capsys):
    """It is said, earlier checkpoints stay whole, later ones are written, none stays too long."""
    manager = Checkpoints(small_disk / "run", keep=2)

    def large(step):
        return state_at(step) | {"more": jax.random.normal(jax.random.key(step), (60_000,))}

    for step in (1, 2):
        manager.save(step, large(step), BELONGS)
    assert manager.steps() == [1, 2]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 50_000))
    for step in (3, 4):
        manager.save(step, large(step), BELONGS)
        assert manager.steps() == [1, 2]
        assert f"step {step} could not be saved: no space left" in capsys.readouterr().err
    ballast.unlink()
    manager.save(5, large(5), BELONGS)
    manager.close()
    again = Checkpoints(small_disk / "run", keep=2)
    assert again.steps() == [2, 5]
    assert sorted(p.name for p in (small_disk / "run" / "checkpoints").iterdir()) == ["2", "5"]
    for step in (2, 5):
        restored = again.restore(step, large(0))
        assert total_digest(restored) == total_digest(large(step))
    again.close()


def test_lines_that_find_no_room_wait_and_are_written_once(small_disk):
    metrics = Metrics(small_disk / "metrics.jsonl", 0)
    metrics.write({"step": 1})
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free))
    long = "x" * 8_000
    metrics.write({"step": 2, "loss": float("nan"), "text": long})
    metrics.write({"step": 3})
    assert len(read_metrics(metrics.path)) == 1
    with pytest.raises(Stop, match="2 lines of .* could not be written"):
        metrics.check()
    ballast.unlink()
    metrics.write({"step": 4})
    metrics.check()
    lines = read_metrics(metrics.path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4] and lines[1]["loss"] is None


def test_no_room_for_a_checkpoint_is_said_before_the_first_step(call, small_disk):
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 40_000))
    out = call("train.py", small_disk / "run", code=74)
    assert "no room for a single checkpoint" in out and "MiB are free" in out
    assert "step " not in out.split("error:")[0].split("plan:")[-1]


def test_a_place_that_cannot_be_written_is_said_before_the_first_step(call, small_disk):
    (small_disk / "run").mkdir()
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    assert not subprocess.run(remount, capture_output=True).returncode
    out = call("train.py", small_disk / "run", code=74)
    assert "Read-only file system" in out and "parameters" not in out


def test_what_a_killed_save_left_is_removed(saved):
    left = saved / "checkpoints" / "3.orbax-checkpoint-tmp"
    left.mkdir()
    Checkpoints(saved, read_only=True).close()
    assert left.exists()  # who only reads removes nothing
    Checkpoints(saved).close()
    assert not left.exists()


def test_a_run_goes_on_with_other_numbers_of_devices(program, tmp_path):
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


@pytest.mark.parametrize("damage", [truncate, flip])
def test_a_run_with_a_damaged_checkpoint_ends_as_if_nothing_was(damage, call, tmp_path):
    """End to end, by the real program; the whole run is made in the same process."""
    fields = {"stop_at": 8}
    call("train.py", tmp_path / "whole")
    expected = json.loads((tmp_path / "whole" / "status.json").read_text())["digest"]
    workdir = tmp_path / "run"
    call("train.py", workdir, code=75, **fields)
    data = max(
        (p for p in (workdir / "checkpoints" / "8").rglob("*") if p.is_file()),
        key=lambda p: p.stat().st_size,
    )
    damage(data)
    out = call("train.py", workdir)
    assert "warning: checkpoint 8: " in out and "resuming at step 4" in out
    assert json.loads((workdir / "status.json").read_text())["digest"] == expected
    lines = [json.loads(s)["step"] for s in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert lines == [3, 5, 6, 9, 10, 12]
    np.testing.assert_equal(
        sorted(p.name for p in (workdir / "checkpoints" / "quarantine").iterdir()), ["8"]
    )


@pytest.fixture
def stopped(call, tmp_path):
    """A run with checkpoints of steps 4 and 8, stopped."""
    call("train.py", tmp_path / "run", code=75, stop_at=8)
    return tmp_path / "run"


def test_a_run_without_a_whole_checkpoint_says_so_and_begins_nothing(call, stopped):
    for path in stopped.glob("checkpoints/*/state/**/*"):
        if path.is_file() and path.stat().st_size > 1_000:
            flip(path)
    for _ in range(2):  # the second time they lie in quarantine
        out = call("train.py", stopped, code=74)
        assert "no checkpoint of" in out and "Nothing was started anew" in out
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
        ("short.txt", b"too short", {}, "tokens are too few for one row of 32"),
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


def test_checkpoints_that_are_gone_are_no_reason_to_begin_anew(call, stopped):
    lines = (stopped / "metrics.jsonl").read_text()
    shutil.rmtree(stopped / "checkpoints")
    out = call("train.py", stopped, code=74)
    assert "step 8 was saved" in out and "Nothing was started anew" in out
    assert (stopped / "metrics.jsonl").read_text() == lines
    call("train.py", stopped, code=74)


def test_a_checkpoint_under_another_steps_name_is_damage(call, stopped):
    shutil.copytree(stopped / "checkpoints" / "4", stopped / "checkpoints" / "10")
    out = call("train.py", stopped)
    assert "checkpoint 10 is that of step 4 by another name" in out
    assert "resuming at step 8" in out and "done: 12 steps" in out


def test_a_line_that_is_no_metric_is_left_out_and_kept_aside(call, stopped):
    path = stopped / "metrics.jsonl"
    path.write_text("what is this\n" + path.read_text())
    out = call("train.py", stopped)
    assert "1 damaged lines are skipped" in out
    assert [line["step"] for line in read_metrics(path)] == [3, 5, 6, 9, 10, 12]
    assert "what is this" in (stopped / "metrics.damaged").read_text()


def test_the_status_tells_of_ends_before_the_first_step_too(call, stopped, tmp_path):
    status = stopped / "status.json"
    call("train.py", stopped, code=65, **{"data.path": tmp_path / "moved" / "*.txt"})
    now = json.loads(status.read_text())
    assert (now["state"], now["code"], now["saved"]) == ("failed", 65, 8)
    assert "nothing matches" in now["reason"]
    assert "nothing matches" in (stopped / "log.txt").read_text()
    call("train.py", stopped)
    done = status.read_text()
    call("train.py", stopped, code=65, **{"data.path": tmp_path / "moved" / "*.txt"})
    assert status.read_text() == done  # what was reached stays said


def test_metrics_that_were_deleted_go_on(call, stopped):
    (stopped / "metrics.jsonl").unlink()
    call("train.py", stopped)
    assert [line["step"] for line in read_metrics(stopped / "metrics.jsonl")] == [9, 10, 12]


def test_a_full_disk_is_outlived(command, small_disk, tmp_path):
    """End to end: nothing of the run finds room for a while, and nothing is lost."""
    workdir, ballast, said = small_disk / "run", small_disk / "ballast", tmp_path / "said"
    fields = {"steps": 100_000, "save_every": 20, "log_every": 1, "keep": 1}
    with said.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, *command("train.py", workdir, **fields)],
            cwd=ROOT,
            env=os.environ | {"NPROC": "1"},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )

    def wait_for(found):
        while not found():
            assert process.poll() is None, said.read_text()
            time.sleep(0.02)

    def last_step():
        return read_metrics(workdir / "metrics.jsonl")[-1]["step"]

    wait_for(lambda: list(workdir.glob("checkpoints/[0-9]*0")))
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while stream.write(bytes(4_096)):
            pass
    wait_for(lambda: "its lines wait" in said.read_text())
    wait_for(lambda: "could not be saved" in said.read_text() or time.sleep(1) is None)
    ballast.unlink()
    full = last_step()
    wait_for(lambda: last_step() > full + 60)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75, said.read_text()
    lines = [line["step"] for line in read_metrics(workdir / "metrics.jsonl")]
    assert lines == list(range(1, lines[-1] + 1))
