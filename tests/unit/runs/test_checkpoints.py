"""Checkpoints that were damaged, foreign or cut off, and disks that are full."""

import gc
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import delete, empty, flip, truncate

from posenc_jax.runs import checkpoints
from posenc_jax.runs.checkpoints import Checkpoints, digests, total_digest
from posenc_jax.runs.metrics import Metrics, read_metrics
from posenc_jax.runtime.errors import Damaged, OtherConfig, Stop

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


@pytest.fixture(autouse=True, scope="module")
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


def restore_last(workdir, accept=lambda card: None):
    """The step and state of the newest whole checkpoint; later saves are unharmed."""
    manager = Checkpoints(workdir, keep=3)
    try:
        card, state = manager.restore_last(state_at(0), accept)
        after = card["step"] + 1
        manager.save(after, state_at(after), BELONGS)
        manager.settle()
        assert manager.steps()[-1] == after
        _, restored = manager.restore(after, state_at(0))
        assert total_digest(restored) == total_digest(state_at(after))
        return card["step"], state
    finally:
        manager.close()


WAYS = truncate, empty, delete, flip


@pytest.mark.parametrize(
    "turn", [None, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(len(WAYS)))]
)
def test_damage_to_any_file_costs_one_interval_at_most(turn, saved, tmp_path, capsys):
    """The one before is used, or the newest where the file does not matter; never wrong numbers."""
    used = []
    for number, file in enumerate(newest_files(saved)):
        copy = tmp_path / "copy"
        shutil.copytree(saved, copy)
        damage = WAYS[(number if turn is None else turn) % len(WAYS)]
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


def test_a_foreign_checkpoint_is_refused_and_stays(saved):
    def accept(card):
        raise OtherConfig("of another run")

    with pytest.raises(OtherConfig):
        restore_last(saved, accept)
    manager = Checkpoints(saved)
    with pytest.raises(OtherConfig, match=r"missing: \['params.c'\]"):
        manager.restore_last(state_at(0) | {"params": {"c": jnp.zeros(1)}}, lambda card: None)
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
                manager.restore_last(state_at(0), lambda card: None)
    manager.close()
    assert not (saved / "checkpoints" / "quarantine").exists()


def test_a_card_that_was_edited_or_moved_is_damage(saved, capsys):
    (saved / "checkpoints" / "9").mkdir()  # an empty folder is no checkpoint
    shutil.copytree(saved / "checkpoints" / "1", saved / "checkpoints" / "7")
    (path,) = (saved / "checkpoints" / "2" / "card").glob("metadata")
    card = json.loads(path.read_text())
    card["data"] = "another"
    path.write_text(json.dumps(card))
    assert restore_last(saved)[0] == 1
    said = capsys.readouterr().err
    assert "checkpoint 7 is a renamed checkpoint of step 1" in said
    assert "checkpoint 2: its card is not what was written" in said


def test_a_folder_whose_name_is_no_step_is_no_checkpoint(saved):
    for name in ("²", "٣", "007", "9" * 200):
        (saved / "checkpoints" / name).mkdir()
    assert Checkpoints(saved, read_only=True).steps() == [1, 2]


def test_an_array_that_was_changed_is_damage(tmp_path, monkeypatch):
    """Also where its files are whole, so that Orbax restores it; of the optimizer too."""
    manager = Checkpoints(tmp_path)
    for step, name in ((1, "params.a"), (2, "step")):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "digests", lambda arrays, n=name: digests(arrays) | {n: ""})
            manager.save(step, state_at(step), BELONGS)
            manager.settle()
        for like in (
            state_at(0),
            {"params": state_at(0)["params"]},
        ):
            with pytest.raises(Damaged, match=f"checkpoint {step}: {name} is not what was written"):
                manager.restore(step, like)
    manager.close()


def test_a_digest_covers_every_bit():
    state = {"a": jnp.arange(4.0), "b": jnp.zeros((), jnp.int32)}
    flipped = np.arange(4, dtype=np.float32)
    flipped.view(np.uint32)[2] ^= 1
    assert total_digest(state) != total_digest(state | {"a": jnp.asarray(flipped)})
    assert total_digest(state) != total_digest(state | {"a": jnp.arange(4.0).reshape(2, 2)})
    assert total_digest(state) == total_digest(dict(reversed(state.items())))


def test_a_save_without_room_is_an_error_and_leaves_earlier_checkpoints_whole(small_disk):
    def large(step):
        return state_at(step) | {"more": jax.random.normal(jax.random.key(step), (60_000,))}

    manager = Checkpoints(small_disk / "run", keep=2)
    for step in (1, 2):
        manager.save(step, large(step), BELONGS)
    manager.settle()
    assert manager.steps() == [1, 2]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 50_000))
    manager.save(3, large(3), BELONGS)
    with pytest.raises(Stop, match="step 3 could not be saved: no space left"):
        manager.settle()
    again = Checkpoints(small_disk / "run", keep=2)
    assert again.steps() == [1, 2]
    ballast.unlink()
    again.save(3, large(3), BELONGS)
    again.settle()
    assert again.steps() == [2, 3]
    assert sorted(p.name for p in (small_disk / "run" / "checkpoints").iterdir()) == ["2", "3"]
    for step in (2, 3):
        assert total_digest(again.restore(step, large(0))[1]) == total_digest(large(step))
    again.close()


def test_a_line_without_room_is_an_error_and_its_part_is_dropped_on_resuming(small_disk):
    path = small_disk / "metrics.jsonl"
    metrics = Metrics(path, 0)
    metrics.write({"step": 1, "loss": float("nan")})
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free))
    with pytest.raises(Stop, match="cannot write .*metrics.jsonl: .*No space left"):
        metrics.write({"step": 2} | {f"number {i}": 0.5 for i in range(800)})
    assert [line["step"] for line in read_metrics(path)] == [1]
    ballast.unlink()
    Metrics(path, 1).write({"step": 2})
    lines = read_metrics(path)
    assert [line["step"] for line in lines] == [1, 2] and lines[0]["loss"] is None


def test_leftovers_of_a_killed_save_are_removed(saved):
    left = saved / "checkpoints" / "3.orbax-checkpoint-tmp"
    left.mkdir()
    Checkpoints(saved, read_only=True).close()
    assert left.exists()  # who only reads removes nothing
    Checkpoints(saved).close()
    assert not left.exists()
