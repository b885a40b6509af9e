"""What is tried against a run: damage, foreign files, other processes. See docs/reliability.md."""

import gc
import json
import logging
import os
import shutil
import signal
import subprocess
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import finish

import posenc_jax
from posenc_jax.exits import OtherConfig, Stop
from posenc_jax.training.checkpoints import Checkpoints, total_digest
from posenc_jax.training.guard import hold
from posenc_jax.training.run import Metrics, read_metrics

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
        moved = [p.name for p in (copy / "quarantine").iterdir()] if step == 1 else []
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
    assert {p.name for p in (saved / "quarantine").iterdir()} == {"1", "2"}


def test_a_foreign_checkpoint_is_refused_and_stays(saved):
    def accept(step, card):
        raise OtherConfig("of another run")

    with pytest.raises(OtherConfig):
        restore_last(saved, accept)
    manager = Checkpoints(saved)
    with pytest.raises(OtherConfig, match=r"missing: \['params.c'\]"):
        manager.restore_last(state_at(0) | {"params": {"c": jnp.zeros(1)}}, lambda step, card: None)
    manager.close()
    assert not (saved / "quarantine").exists()


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
    assert not (saved / "quarantine").exists()


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


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


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
        metrics.close()
    ballast.unlink()
    metrics.write({"step": 4})
    metrics.close()
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


LONGER = {"steps": 60, "save_every": 4, "log_every": 1, "valid_every": 7}


@pytest.fixture(scope="session")
def longer(program, tmp_path_factory):
    """The digest of a run that nobody killed."""
    workdir = tmp_path_factory.mktemp("longer") / "run"
    finish(program("train.py", workdir, **LONGER))
    return json.loads((workdir / "status.json").read_text())["digest"]


def kill_until_done(program, workdir, rng, kills):
    """The same command again after each kill -9, at a random moment after a random step."""
    for _ in range(kills):
        process = program("train.py", workdir, **LONGER)
        after = rng.integers(1, 58)
        while process.poll() is None:
            path = workdir / "metrics.jsonl"
            steps_made = [line["step"] for line in read_metrics(path)] if path.exists() else []
            if steps_made and steps_made[-1] >= after:
                time.sleep(rng.uniform(0, 0.15))
                process.kill()
            time.sleep(0.005)
        process.communicate()
        if process.returncode == 0:
            break
    else:
        finish(program("train.py", workdir, **LONGER))


def check_end(workdir, digest):
    status = json.loads((workdir / "status.json").read_text())
    assert (status["state"], status["digest"]) == ("done", digest)
    assert [line["step"] for line in read_metrics(workdir / "metrics.jsonl")] == list(range(1, 61))
    assert {p.name for p in (workdir / "checkpoints").iterdir()} == {"56", "60"}
    assert not (workdir / "quarantine").exists()


def test_killed_at_random_it_ends_the_same(program, longer, tmp_path):
    kill_until_done(program, tmp_path / "run", np.random.default_rng(0), kills=2)
    check_end(tmp_path / "run", longer)


@pytest.mark.slow
def test_killed_twenty_times_it_ends_the_same(program, longer, tmp_path, capsys):
    """Four runs, five kills each; the seed is printed and can be given again."""
    seed = int(os.environ.get("KILL_SEED", time.time_ns() % 2**32))
    rng = np.random.default_rng(seed)
    for number in range(4):
        kill_until_done(program, tmp_path / str(number), rng, kills=5)
        check_end(tmp_path / str(number), longer)
    with capsys.disabled():
        print(f"\nKILL_SEED={seed}")


def test_twice_interrupted_it_leaves_at_once_with_the_last_checkpoint_whole(program, tmp_path):
    workdir = tmp_path / "run"
    process = program("train.py", workdir, steps=100_000, save_every=50)
    while not any(p.name.isdigit() for p in workdir.glob("checkpoints/*")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    out = process.communicate()[0]
    assert process.returncode == 75 and time.monotonic() - began < 10, out
    assert "Traceback" not in out
    model, *_ = posenc_jax.load_run(workdir)
    assert model is not None


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


class Wandb:
    """A run of wandb that breaks at its n-th call."""

    def __init__(self, calls):
        self.calls, self.summary = calls, {}

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


def test_wandb_may_refuse_to_start(call, tmp_path, monkeypatch):
    import wandb

    def refuse(**options):
        raise wandb.errors.CommError("no host")

    monkeypatch.setattr(wandb, "init", refuse)
    out = call("train.py", tmp_path / "run", **{"wandb.mode": "online"})
    assert "no host" in out and "done: 12 steps" in out


@pytest.mark.parametrize("name", ["train.py", "eval_extrapolation.py"])
def test_a_signal_while_text_is_made_into_tokens_is_heard(name, call, whole, tmp_path, monkeypatch):
    from posenc_jax.data import sources

    real = sources.documents

    def interrupted(data, seed):
        os.kill(os.getpid(), signal.SIGTERM)
        yield from real(data, seed)

    monkeypatch.setattr(sources, "documents", interrupted)
    (tmp_path / "a.txt").write_text("never seen before " * 40)
    words, workdir = [], tmp_path / "run"
    fields = {"data.path": str(tmp_path / "a.txt"), "data.cache": str(tmp_path / "cache")}
    if name != "train.py":
        shutil.copytree(whole[0], workdir)
        words = ["--config.data.source=text", f"--config.data.path={tmp_path}/a.txt"]
    out = call(name, workdir, *words, code=75, **fields)
    assert "stopped by SIGTERM while the text was made into tokens" in out


def test_one_training_run_at_a_time(call, tmp_path):
    (tmp_path / "run").mkdir()
    with hold(tmp_path / "run", "another training run"):
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
    np.testing.assert_equal(sorted(p.name for p in (workdir / "quarantine").iterdir()), ["8"])
