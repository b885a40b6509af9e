"""What wandb is told, and by whom: command line, environment, recipe."""

import json
import os

import pytest
from running import wandb_records

CLEAN = ("MODE", "PROJECT", "NAME", "RUN_GROUP", "DIR", "SWEEP_ID", "RUN_ID", "API_KEY")


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of the machine's own settings."""
    for name in CLEAN:
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


@pytest.fixture
def started(monkeypatch):
    """The options of every run of wandb that a program starts, without wandb."""
    import wandb

    found = []

    class Run:
        url, dir = "https://somewhere/run", None

        def __init__(self):
            self.summary, self.metrics = {}, {}

        def define_metric(self, name, **options):
            self.metrics[name] = options

        def log(self, values): ...

        def finish(self, **options): ...

    def init(**options):
        found.append(options | {"run": Run()})
        return found[-1]["run"]

    monkeypatch.setattr(wandb, "init", init)
    return found


@pytest.mark.slow
def test_the_command_line_is_over_the_environment_and_it_over_the_recipe(
    call, started, environment, tmp_path
):
    for variable, value in {
        "MODE": "offline",
        "PROJECT": "theirs",
        "NAME": "named",
        "RUN_GROUP": "grouped",
        "DIR": str(tmp_path / "elsewhere"),
    }.items():
        environment.setenv(f"WANDB_{variable}", value)
    fields = {"steps": 3, "wandb.mode": "online"}
    call("train.py", tmp_path / "one", **fields)
    (one,) = started
    assert one["mode"] == "online"  # as the command line says
    assert (one["project"], one["group"], one["name"]) == ("theirs", "grouped", "named")
    assert one["dir"] == str(tmp_path / "elsewhere")
    call("train.py", tmp_path / "two", **fields | {"wandb.project": "ours", "wandb.group": "g"})
    assert (started[1]["project"], started[1]["group"]) == ("ours", "g")


@pytest.mark.parametrize(("value", "runs"), [("disabled", 0), ("offline", 1), ("dryrun", 1)])
def test_a_mode_of_the_environment_holds_over_auto(
    value, runs, call, started, environment, tmp_path
):
    environment.setenv("WANDB_MODE", value)
    environment.setenv("WANDB_API_KEY", "a" * 40)  # with which auto would be online
    fields = {"steps": 3, "wandb.mode": None}  # not on the command line
    call("train.py", tmp_path / "run", **fields)
    assert len(started) == runs and all(one["mode"] == "offline" for one in started)
    words = ["--config.multiples=1,2", "--config.extensions=none"]
    call("eval_extrapolation.py", tmp_path / "run", *words)
    assert len(started) == 2 * runs
    words = ["--config.multiples=0.5,1", "--config.wandb.mode=online"]  # other curves
    call("eval_extrapolation.py", tmp_path / "run", *words)
    assert started[-1]["mode"] == "online"


def test_runs_are_told_apart_and_grouped_by_what_they_share(call, started, tmp_path):
    for name in ("rope-s0", "rope-s0-base=5"):
        out = call("train.py", tmp_path / name, **{"wandb.mode": "online", "steps": 3})
        assert "wandb: https://somewhere/run" in out
    words = ["--config.multiples=1,2", "--config.extensions=none,yarn"]
    call("eval_extrapolation.py", tmp_path / "rope-s0", *words)
    one, other, evaluation = started
    assert (one["name"], other["name"]) == ("rope-s0", "rope-s0-base=5")
    assert one["group"] == other["group"] == evaluation["group"] == "text-bytes-L32-1x16"
    assert evaluation["name"] == "rope-s0-eval" and evaluation["job_type"] == "eval"
    assert one["config"]["parameters"]["encoding"] == 0 < one["config"]["parameters"]["total"]
    assert one["config"]["data_fingerprint"][:16] == evaluation["config"]["data_fingerprint"]
    assert evaluation["config"]["step"] == 3
    assert evaluation["config"]["parameters"] == one["config"]["parameters"]
    assert evaluation["config"]["evaluation"]["extensions"] == "none,yarn"
    assert evaluation["config"]["evaluation"]["name"] == "held-out"
    assert one["run"].metrics["train/loss"]["summary"] == "min"
    assert one["run"].metrics["train/time"]["hidden"] is True


def test_an_offline_run_says_how_it_is_uploaded_and_holds_a_panel_of_all_methods(call, tmp_path):
    run = tmp_path / "run"
    out = call("train.py", run, **{"wandb.mode": "offline", "steps": 3})
    assert f"wandb: offline, to upload: wandb sync {run}/wandb/offline-run-" in out
    words = ["--config.multiples=1,2", "--config.extensions=none,yarn"]
    out = call("eval_extrapolation.py", run, *words)
    assert f"wandb: offline, to upload: wandb sync {run}/eval/wandb/offline-run-" in out
    (path,) = run.glob("eval/wandb/offline-run-*/*.wandb")
    found, points = {}, {}
    for record in wandb_records(path):
        items = record.history.item if record.HasField("history") else []
        row = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
        found |= row
        if "eval/length" in row:
            points[row["eval/length"]] = row["eval/multiple"]
    assert points == {32: 1.0, 64: 2.0}
    panels = [name for name in found if name.startswith("methods/same_token")]
    assert panels, sorted(found)


def test_every_trial_of_a_sweep_has_a_folder_and_an_id_of_its_own(
    call, started, environment, tmp_path
):
    """As wandb's agent starts them: one command, another id and other arguments each time."""
    environment.setenv("WANDB_SWEEP_ID", "sweep")
    for trial, rate in (("first", 0.1), ("second", 0.2)):
        environment.setenv("WANDB_RUN_ID", trial)
        fields = {"wandb.mode": "online", "steps": 3, "learning_rate": rate}
        call("train.py", tmp_path / "run", **fields)
        kept = json.loads((tmp_path / "run" / trial / "config.json").read_text())
        assert kept["learning_rate"] == rate
    assert [one["id"] for one in started] == ["first", "second"]
    assert sorted(os.listdir(tmp_path / "run")) == ["first", "second"]
