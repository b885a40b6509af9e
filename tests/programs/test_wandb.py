"""Settings of wandb from command line, environment and recipe, and the values logged."""

import csv
import json
import os
import re
import time

import pytest
import yaml
from running import ROOT, wandb_records

from posenc_jax.config import flags, load

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
            self.summary, self.metrics, self.points, self.codes = {}, {}, [], []

        def define_metric(self, name, **options):
            self.metrics[name] = options

        def log(self, values):
            assert not self.codes, "it is finished"
            self.points.append(values)

        def finish(self, exit_code):
            self.codes.append(exit_code)

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


def test_runs_have_distinct_names_and_common_groups(call, started, tmp_path):
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


AUTO = {"wandb.mode": "auto", "steps": 3}
OFF = "wandb: off, there is no key; to turn it on: wandb login, or --config.wandb.mode=offline"


def test_auto_without_a_key_is_off_and_says_so_once(call, started, tmp_path):
    run = tmp_path / "run"
    for workdir, words in ((run, []), (tmp_path / "both", [*EVALUATE, *SHORT])):
        out = call("train.py", workdir, *words, **AUTO)
        assert out.count("wandb:") == out.count(OFF) == 1
    words = [word.replace("--evaluate", "--config") for word in EVALUATE + SHORT]
    out = call("eval_extrapolation.py", run, *words)
    assert out.count("wandb:") == out.count(OFF) == 1
    assert not started and not list(tmp_path.glob("**/wandb"))
    required = AUTO | {"wandb.required": True}
    out = call("train.py", tmp_path / "required", code=74, **required)
    assert "wandb.required is set: there is no key" in out


def test_runs_have_tags_and_no_metric_that_is_unknown(call, started, tmp_path):
    call("train.py", tmp_path / "run", **ONLINE)
    text = {"data.source": "synthetic", "data.task": "variables", "data.path": None}
    call("train.py", tmp_path / "task", **ONLINE | text)
    assert [one["tags"] for one in started] == [
        ["rope", "text", "1x16"],
        ["rope", "variables", "1x16"],
    ]
    logged = {name for one in started for values in one["run"].points for name in values}
    assert "train/loss" in logged and "train/mfu" not in logged


def test_one_command_uploads_a_resumed_run_and_its_evaluations(call, tmp_path):
    """wandb keeps a folder for each part, and uploads those of one id in order."""
    run = tmp_path / "run of mine"
    fields = {"wandb.mode": "offline", "steps": 3, "log_every": 1}
    words = [word.replace("--evaluate", "--config") for word in EVALUATE + SHORT]
    out = call("train.py", run, code=75, **fields, stop_at=2)
    out += call("train.py", run, **fields)
    out += call("eval_extrapolation.py", run, *words)
    advice = f"wandb: offline, to upload: wandb sync '{run}/wandb'/offline-run-*\n"
    assert out.count("to upload") == out.count(advice) == 3
    names = sorted(path.name for path in run.glob("wandb/offline-run-*"))
    identity = (run / "wandb_id").read_text()
    assert len(names) == 3 and [name.endswith(identity) for name in names] == [True, True, False]


def test_an_offline_run_holds_a_panel_of_all_methods(call, tmp_path):
    run = tmp_path / "run"
    call("train.py", run, **{"wandb.mode": "offline", "steps": 3})
    words = ["--config.multiples=1,2", "--config.extensions=none,yarn"]
    out = call("eval_extrapolation.py", run, *words)
    assert f"wandb: offline, to upload: wandb sync {run}/wandb/offline-run-*\n" in out
    (path,) = run.glob(f"wandb/offline-run-*-{(run / 'eval' / 'wandb_id').read_text()}/*.wandb")
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


def test_each_trial_of_a_sweep_has_a_folder_and_an_id(call, started, environment, tmp_path):
    """wandb's agent starts one command with another id and other arguments each time."""
    environment.setenv("WANDB_SWEEP_ID", "sweep")
    for trial, rate in (("first", 0.1), ("second", 0.2)):
        environment.setenv("WANDB_RUN_ID", trial)
        fields = {"wandb.mode": "online", "steps": 3, "learning_rate": rate}
        call("train.py", tmp_path / "run", **fields)
        kept = json.loads((tmp_path / "run" / trial / "config.json").read_text())
        assert kept["learning_rate"] == rate
    assert [one["id"] for one in started] == ["first", "second"]
    assert sorted(os.listdir(tmp_path / "run")) == ["first", "second"]


EVALUATE = ["--evaluate=configs/eval.py", "--evaluate.extensions=none"]
SHORT = ["--evaluate.multiples=1,2", "--evaluate.protocols=same_token"]
ONLINE = {"wandb.mode": "online", "steps": 3}
METRIC = "extrap/same_token/none@2x"


def bits(run):
    """The metric in the files of a run."""
    with (run / "eval" / "curves.csv").open() as file:
        rows = [
            row for row in csv.DictReader(file) if (row["length"], row["method"]) == ("64", "none")
        ]
    return float(rows[-1]["bpb"])


def of_curves(one):
    return [values for values in one["run"].points if "eval/length" in values]


def test_a_trial_is_trained_and_evaluated_in_one_run(call, started, environment, tmp_path):
    environment.setenv("WANDB_SWEEP_ID", "sweep")
    environment.setenv("WANDB_RUN_ID", "trial")
    run = tmp_path / "runs" / "trial"
    call("train.py", tmp_path / "runs", *EVALUATE, *SHORT, **ONLINE)
    trained, one = started
    assert one["id"] == trained["id"] == "trial" and one["resume"] == "allow"
    assert one["run"].codes == trained["run"].codes == [0]
    assert one["run"].summary[METRIC] == pytest.approx(bits(run))
    assert trained["run"].summary["exit_code"] == 0
    assert any("train/loss" in values for values in trained["run"].points)
    assert any("extrap/same_token/none" in values for values in one["run"].points)
    assert one["run"].metrics["extrap/*"] == {"step_metric": "eval/length"}
    assert one["config"]["evaluation"]["step"] == 3
    assert list((run / "plots").glob("*.png"))
    out = call("train.py", tmp_path / "runs", *EVALUATE, *SHORT, **ONLINE)
    words = [word.replace("--evaluate", "--config") for word in EVALUATE + SHORT]
    call("eval_extrapolation.py", run, *words)
    assert "already done" in out and len(started) == 2  # the same curves, once


def test_a_run_that_was_done_is_evaluated_in_its_run(call, started, tmp_path):
    run = tmp_path / "run"
    call("train.py", run, **ONLINE)
    call("train.py", run, *EVALUATE, *SHORT, **ONLINE)
    trained, one = started
    assert one["id"] == trained["id"] == (run / "wandb_id").read_text()
    assert one["resume"] == "allow" and len(of_curves(one)) == 2
    assert one["config"]["model"]["vocab"] == 256  # what training found stays
    call("train.py", run, *EVALUATE, *SHORT, "--evaluate.last=4", **ONLINE)
    _, _, other = started  # points cannot be changed: other curves are another run
    assert other["id"] != trained["id"] and len(of_curves(other)) == 2
    assert other["run"].summary[METRIC] == pytest.approx(bits(run)) != one["run"].summary[METRIC]


def test_a_stopped_run_is_not_evaluated_and_a_failed_evaluation_is_retried(call, started, tmp_path):
    run = tmp_path / "run"
    call("train.py", run, *EVALUATE, *SHORT, code=75, **ONLINE, stop_at=2)
    assert not (run / "eval").exists() and started[0]["run"].codes == [75]
    (run / "eval").write_text("no folder")
    out = call("train.py", run, *EVALUATE, *SHORT, code=74, **ONLINE)
    assert "done: 3 steps" in out and "eval" in out.splitlines()[-1]
    (run / "eval").unlink()
    assert json.loads((run / "status.json").read_text())["state"] == "done"
    call("train.py", run, *EVALUATE, *SHORT, **ONLINE)
    assert {one["id"] for one in started} == {(run / "wandb_id").read_text()}
    assert METRIC in started[2]["run"].summary and len(started) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--evaluate=configs/none.py"], "--evaluate=configs/none.py: there is no such file"),
        (["--evaluate", "configs/eval.py", "--evaluate.documents=1"], "documents"),
        (["--evaluate.extension=none"], "unknown field 'extension'; did you mean 'extensions'"),
        (["--evaluate.extensions=yarn:beta_fsat=3"], "beta_fsat"),
        (["--evaluate.extensions=self_extend:group=0"], "group"),
        (["--evaluate.multiples=1,1.5"], "length 32 does not divide the longest one, 48"),
        (["--evaluate.wandb.mode=offline"], "--evaluate.wandb has no effect"),
        (["--evaluate.documents=9", "--config.distributed=True"], "--evaluate is for one process"),
    ],
)
def test_a_mistake_in_the_evaluation_is_refused_before_training(words, message, call, tmp_path):
    out = call("train.py", tmp_path / "run", *words, code=2)
    assert message in out and not (tmp_path / "run").exists()


def test_wandb_may_break_while_the_curves_are_logged(call, started, tmp_path, monkeypatch):
    import wandb

    init = wandb.init

    def broken(**options):
        if "evaluation" in options["config"]:
            raise BrokenPipeError("the service is gone")
        return init(**options)

    run, words = tmp_path / "run", [*EVALUATE, *SHORT]
    with monkeypatch.context() as patched:
        patched.setattr(wandb, "init", broken)
        out = call("train.py", run, *words, **ONLINE)
        assert out.count("wandb failed and is off from here") == 1 and bits(run) > 0
        out = call("train.py", run, *words, code=74, **ONLINE | {"wandb.required": True})
        assert "wandb failed and wandb.required is set" in out
    call("train.py", run, *words, **ONLINE)
    assert METRIC in started[-1]["run"].summary


def written(path):
    """The summary and the exit codes in the file of an offline run."""
    summary, codes = {}, []
    for record in wandb_records(path):
        for item in record.summary.update if record.HasField("summary") else []:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        codes += [record.exit.exit_code] if record.HasField("exit") else []
    return summary, codes


def test_an_offline_run_holds_training_and_curves(call, tmp_path):
    run = tmp_path / "run"
    call("train.py", run, *EVALUATE, *SHORT, **{"wandb.mode": "offline", "steps": 3})
    trained, evaluated = sorted(run.glob("wandb/offline-run-*/*.wandb"))
    assert trained.name == evaluated.name == f"run-{(run / 'wandb_id').read_text()}.wandb"
    for path, name in ((trained, "train/loss"), (evaluated, METRIC)):
        summary, codes = written(path)
        for _ in range(30):  # wandb's own process may still be writing
            if name in summary and codes:
                break
            time.sleep(1)
            summary, codes = written(path)
        assert name in summary and codes == [0]
    assert summary[METRIC] == pytest.approx(bits(run))


def test_the_documented_sweep_is_a_command_that_runs():
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    from posenc_jax.evaluation import planning

    found = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "sweeps.md").read_text(), re.DOTALL)
    assert found is not None
    sweep = yaml.safe_load(found[1])
    least = {
        name: {"value": given["min"] if "min" in given else given["values"][0]}
        for name, given in sweep["parameters"].items()
    }
    args = create_sweep_command_args({"args": least})["args"]
    written = sweep["command"][sweep["command"].index("train.py") :]
    words, asked = flags.without_evaluation(
        [w for word in written for w in (args if word == "${args}" else [word])]
    )
    evaluation, wrong = flags.parse_evaluation(asked)
    assert evaluation is not None
    _, recipe, problems = flags.parse(words)
    planning.check(planning.load(evaluation, more=wrong), load(recipe, more=problems))
    _, protocol, method = sweep["metric"]["name"].split("/")
    extension, _, multiple = method.partition("@")
    assert protocol in evaluation.protocols.split(",")
    assert extension in evaluation.extensions.split(",")
    assert multiple.removesuffix("x") in evaluation.multiples.split(",")
