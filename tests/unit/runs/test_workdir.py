"""The folder of a run: whose it is, how its runs end, and records that were damaged."""

import dataclasses
import json

import pytest
from damage import DEEP, variations
from evaluated import make_run

from configs import base
from posenc_jax.config import load, schema
from posenc_jax.config.resolve import FORMAT
from posenc_jax.report.runs import read_runs
from posenc_jax.runs.metrics import Metrics, read_metrics
from posenc_jax.runs.workdir import Workdir, refuse_edited
from posenc_jax.runtime import errors
from posenc_jax.runtime.errors import DataError, OtherConfig, Stop


@pytest.fixture
def config():
    return load(base.get_config())


def test_a_folder_and_its_checkpoints_belong_to_one_configuration(config, tmp_path):
    run = Workdir(tmp_path)
    card = {"step": 4, "config": schema.as_fields(config), "format": FORMAT, "data": "abc"}
    run.claim(config)
    free = dataclasses.replace(config, steps=config.steps + 1, keep=9, stop_at=3)
    run.claim(free)
    run.accept(card, free, "abc")
    refuse_edited(card, free, tmp_path)
    assert run.config() == free
    other = dataclasses.replace(config, batch_size=config.batch_size + 1)
    for resume in (
        lambda: run.claim(other),
        lambda: run.accept(card, other, "abc"),
        lambda: refuse_edited(card, other, tmp_path),
    ):
        with pytest.raises(OtherConfig, match=f"batch_size: {config.batch_size} "):
            resume()
    with pytest.raises(DataError, match="the data changed since the checkpoint"):
        run.accept(card, free, "abd")


def test_a_run_without_its_checkpoints_does_not_restart(tmp_path):
    run = Workdir(tmp_path)
    run.step_on_disk = 8
    with pytest.raises(Stop, match="step 8 was saved .* Training did not restart"):
        run.resume_from(0)


# What a status says, and what the next one keeps; a damaged one hides no reason.
SAVED = {'{"saved": 8, "speed": 2.5}': (8, 2.5), "[": (None, None)}


@pytest.mark.parametrize(
    ("error", "state", "code", "reason"),
    [
        (DataError("its own reason"), "failed", 65, "its own reason"),
        (errors.Interrupted("a signal"), "stopped", 75, "a signal"),
        (KeyboardInterrupt(), "stopped", 75, "a second ^C"),
        (OSError(28, "No space"), "failed", 74, "No space"),
        (RuntimeError("a fault"), "crashed", 1, "RuntimeError('a fault')"),
    ],
)
def test_the_status_has_the_error_that_ended_a_run(error, state, code, reason, tmp_path):
    run = Workdir(tmp_path)
    for before, kept in SAVED.items():
        (tmp_path / "status.json").write_text(before)
        with pytest.raises(type(error)), run.opened():
            raise error
        status = run.read_status()
        assert (status["state"], status["code"]) == (state, code) and reason in status["reason"]
        assert (status.get("saved"), status.get("speed")) == kept
        assert f"{state}: {status['reason']}\n" in (tmp_path / "log.txt").read_text()


def test_a_mistake_in_the_command_ends_no_run_and_what_was_reached_stays(tmp_path):
    run = Workdir(tmp_path)
    run.status("done", 0)
    for error in (errors.ConfigError("a mistake"), OtherConfig("another"), Stop("a full disk")):
        with pytest.raises(type(error)), run.opened():
            raise error
        assert run.read_status()["state"] == "done"
    run.status("running", 75)
    with pytest.raises(OtherConfig), run.opened():
        raise OtherConfig("another")
    assert run.read_status()["state"] == "running"


@pytest.mark.parametrize("status", [[], 3, None])
def test_a_status_of_another_kind_names_the_file(status, tmp_path):
    (tmp_path / "status.json").write_text(json.dumps(status))
    with pytest.raises(Stop, match=f"{tmp_path}/status.json is damaged: "):
        Workdir(tmp_path).read_status()


BAD = {
    "what is this": "",
    "5": "not an object: 5",
    '{"loss": 2.0}': "step must be a whole number; got None",
    '{"step": "7", "loss": 2.0}': "step must be a whole number; got '7'",
    '{"step": 1.5, "loss": 2.0}': "step must be a whole number; got 1.5",
    f'{{"step": 7, "tokens": 1{"0" * 400}}}': "tokens must be a number; got 10000",
    '{"step": 7, "loss": "low"}': "loss must be a number; got 'low'",
    '{"step": 7, "memory_mib": [3]}': r"memory_mib must be a number; got \[3\]",
}


@pytest.mark.parametrize(("line", "why"), BAD.items())
def test_a_bad_line_of_metrics_is_named(line, why, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "loss": null}}\n{line}\n')
    with pytest.raises(Stop, match=f"metrics.jsonl is damaged: line 2: {why}"):
        read_metrics(path)


def test_a_resumed_run_drops_a_torn_line_of_metrics_and_those_of_later_steps(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    Metrics(path, resume_at=2).write({"step": 3, "loss": float("nan")})
    assert read_metrics(path) == [{"step": 1}, {"step": 2}, {"step": 3, "loss": None}]


def test_bad_metrics_become_a_note_in_the_report(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / f"rope-s{seed}", "rope", seed)
    with (tmp_path / "rope-s1" / "metrics.jsonl").open("a") as stream:
        stream.write('{"loss": 2.0}\n')
    found = read_runs([tmp_path])
    assert any("rope-s1/metrics.jsonl is damaged: line 4: " in note for note in found.notes)
    assert len(found.runs) == 2 and all(run.cells for run in found.runs)


def test_a_damaged_configuration_is_named_and_the_other_runs_are_reported(tmp_path):
    folders = [
        make_run(tmp_path / f"rope-s{seed}", "rope", seed, evaluated=False) for seed in (0, 1)
    ]
    path = folders[1] / "config.json"
    config, skipped = json.loads(path.read_text()), 0
    for content in [DEEP, "9" * 5000, *map(json.dumps, list(variations(config))[::3])]:
        path.write_text(content)
        found = read_runs(folders)
        assert found.runs[0].name == "rope-s0"
        notes = [note for note in found.notes if note.startswith("skipped: rope-s1: ")]
        assert all("config.json as a run's: " in note for note in notes)
        skipped += len(notes)
    assert skipped > 50


def test_a_loop_of_links_is_no_run(tmp_path):
    for one, other in (("a", "b"), ("b", "a")):
        (tmp_path / one).symlink_to(tmp_path / other)
    with pytest.raises(DataError, match="a is not a folder of a run or a sweep"):
        read_runs([tmp_path / "a"])
