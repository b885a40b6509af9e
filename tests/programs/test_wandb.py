"""wandb shows a run, named and grouped by its settings; where it fails, the run goes on."""

import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import time
from base64 import b64encode

import pytest
import yaml
from curves import rows_of
from evaluated import make_run
from running import ROOT, finish, python

from posenc_jax.config import flags, load
from posenc_jax.evaluation import check, records
from posenc_jax.evaluation.cells import label
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.tracking.wandb import summary_of

CLEAN = ("MODE", "PROJECT", "NAME", "RUN_GROUP", "DIR", "SWEEP_ID", "RUN_ID", "API_KEY")
ONLINE = {"wandb.mode": "online", "steps": 3}
EVALUATE = ["--evaluate=configs/eval.py", "--evaluate.extensions=none"]
SHORT = ["--evaluate.multiples=1,2", "--evaluate.protocols=same_token"]
ALONE = [word.replace("--evaluate", "--config") for word in EVALUATE + SHORT]
METRIC = "extrap/same_token/none@2x"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of the machine's own settings."""
    for name in CLEAN:
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return lambda **values: [monkeypatch.setenv(f"WANDB_{n}", v) for n, v in values.items()]


class Run:
    url, dir = "https://somewhere/run", None

    def __init__(self, started):
        self.started = started
        self.summary, self.metrics, self.points, self.codes = {}, {}, [], []
        self.artifacts = []

    def define_metric(self, name, **options):
        self.metrics[name] = options

    def log(self, values):
        assert not self.codes, "it is finished"
        self.started.call()
        self.points.append(values)

    def log_artifact(self, path, **options):
        self.started.call()
        self.artifacts.append((path, options))

    def finish(self, exit_code):
        self.started.call()
        self.codes.append(exit_code)


class Started(list):
    """The options of every run of wandb that a program starts, without wandb."""

    calls = 1_000  # after which the service is gone

    def call(self):
        self.calls -= 1
        if self.calls < 0:
            raise BrokenPipeError("the service is gone")

    def init(self, **options):
        self.call()
        self.append(options | {"run": Run(self)})
        return self[-1]["run"]


@pytest.fixture
def started(monkeypatch):
    import wandb

    found = Started()
    monkeypatch.setattr(wandb, "init", found.init)
    return found


def bits(run):
    """The metric in the files of a run."""
    rows = [row for row in rows_of(run) if (row["length"], row["method"]) == ("64", "none")]
    return float(rows[-1]["bpb"])


def test_the_command_line_is_over_the_environment_and_it_over_the_recipe(
    call, started, environment, tmp_path
):
    elsewhere = str(tmp_path / "elsewhere")
    environment(MODE="dryrun", PROJECT="theirs", NAME="named", RUN_GROUP="grouped", DIR=elsewhere)
    environment(API_KEY="a" * 40)  # with which auto would be online
    call("train.py", tmp_path / "one", **{"wandb.mode": None, "steps": 3})
    call("train.py", tmp_path / "two", **ONLINE | {"wandb.project": "ours", "wandb.group": "g"})
    call("eval_extrapolation.py", tmp_path / "one", *ALONE)
    other = ["--config.multiples=0.5,1", "--config.wandb.mode=online"]
    call("eval_extrapolation.py", tmp_path / "one", *other)
    assert [one["mode"] for one in started] == ["offline", "online", "offline", "online"]
    fields = "project", "group", "name", "dir"
    assert [started[0][field] for field in fields] == ["theirs", "grouped", "named", elsewhere]
    assert [started[1][field] for field in fields] == ["ours", "g", "named", elsewhere]
    environment(MODE="disabled")
    call("train.py", tmp_path / "off", *EVALUATE, *SHORT, **{"wandb.mode": None, "steps": 3})
    assert len(started) == 4


def test_runs_are_named_grouped_and_tagged(call, started, tmp_path):
    assert "wandb: https://somewhere/run" in call("train.py", tmp_path / "rope-s0", **ONLINE)
    task = {"data.source": "synthetic", "data.task": "variables", "data.path": None}
    call("train.py", tmp_path / "task", **ONLINE | task)
    words = ["--config.multiples=1,2", "--config.extensions=none,yarn"]
    call("eval_extrapolation.py", tmp_path / "rope-s0", *words)
    one, other, evaluation = started
    names = [run["name"] for run in started]
    assert names == ["rope-s0", "task", "rope-s0-eval"] and evaluation["job_type"] == "eval"
    assert one["group"] == evaluation["group"] == "text-bytes-L32-1x16" != other["group"]
    assert one["tags"] == ["rope", "text", "1x16"] and other["tags"][1] == "variables"
    assert one["config"]["parameters"]["encoding"] == 0 < one["config"]["parameters"]["total"]
    assert one["config"]["data_fingerprint"][:16] == evaluation["config"]["data_fingerprint"]
    assert evaluation["config"]["step"] == 3
    assert evaluation["config"]["parameters"] == one["config"]["parameters"]
    assert evaluation["config"]["evaluation"]["extensions"] == "none,yarn"
    assert evaluation["config"]["evaluation"]["name"] == "held-out"
    assert one["run"].metrics["train/loss"]["summary"] == "min"
    assert one["run"].metrics["train/time"]["hidden"] is True
    logged = {name for values in one["run"].points for name in values}
    assert "train/loss" in logged and "train/mfu" not in logged  # unknown here


def test_auto_without_a_key_is_off_and_says_so_once(call, started, tmp_path):
    off = "wandb: off, there is no key; to turn it on: wandb login, or --config.wandb.mode=offline"
    auto = {"wandb.mode": "auto", "steps": 3}
    for program, *words in (["train.py", *EVALUATE, *SHORT], ["eval_extrapolation.py", *ALONE]):
        out = call(program, tmp_path / "run", *words, **auto)
        assert out.count("wandb:") == out.count(off) == 1
    assert not started and not list(tmp_path.glob("**/wandb"))
    out = call("train.py", tmp_path / "required", code=74, **auto | {"wandb.required": True})
    assert "wandb.required is set: there is no key" in out


def test_auto_finds_the_key_of_a_login_to_another_host(tmp_path):
    """`wandb login --host=URL` writes its settings, and the key to the file that NETRC names."""
    (tmp_path / ".config/wandb").mkdir(parents=True)
    (tmp_path / ".config/wandb/settings").write_text("[default]\nbase_url = https://wandb.here.org")
    (tmp_path / "keys").write_text(f"machine wandb.here.org login user password {'a' * 40}")
    (tmp_path / "keys").chmod(0o600)
    code = "from posenc_jax.tracking.wandb import _is_off; print(_is_off('auto'))"
    assert "True" in python("-c", code)
    assert "False" in python("-c", code, env={"NETRC": str(tmp_path / "keys")})


def wandb_records(path):
    """Yield the records of an offline run: LevelDB's log format, 32 KiB blocks after 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = 32_768 - at % 32_768
        if room < 7:
            at += room
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        if at + 7 + size > len(data):  # still being written
            return
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # full, or the last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def written(path):
    """Settings, definitions, summary, history and exit codes in the file of an offline run."""
    settings, metrics, summary, history, codes = None, {}, {}, [], []
    for record in wandb_records(path):
        if record.HasField("run"):
            settings = record.run
        if record.HasField("metric"):
            metrics[record.metric.name or record.metric.glob_name] = record.metric.step_metric
        for item in record.summary.update if record.HasField("summary") else []:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        if record.HasField("history"):
            items = [(i.key or "/".join(i.nested_key), i.value_json) for i in record.history.item]
            history.append({k: json.loads(v) for k, v in items if not k.startswith("_")})
        codes += [record.exit.exit_code] if record.HasField("exit") else []
    return settings, metrics, summary, history, codes


def test_the_documented_variables_keep_command_and_host_from_wandb(program, tmp_path):
    hidden = dict(re.findall(r"`(WANDB_\w+)=(\w+)`", (ROOT / "docs" / "runs.md").read_text()))
    finish(program("train.py", tmp_path, env=hidden, **{"wandb.mode": "offline", "steps": 3}))
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"train.py" not in path.read_bytes() and written(path)[0].host == "hidden"


def test_one_command_uploads_a_resumed_run_and_its_evaluations(call, tmp_path):
    """wandb keeps a folder for each part, and uploads those of one id in order. The second file of
    an id replaces the first one's history if wandb does not resume, so curves have their own."""
    run = tmp_path / "run of mine"
    fields = {"wandb.mode": "offline", "steps": 3, "log_every": 1}
    words = [*EVALUATE, *SHORT, "--evaluate.extensions=none,yarn,pi:3"]
    out = call("train.py", run, code=75, **fields, stop_at=2)
    out += call("train.py", run, *words, **fields)
    paths = sorted(run.glob("wandb/offline-run-*/*.wandb"))  # before curves of the same second
    rows, table = rows_of(run), (run / "eval" / "curves.csv").read_bytes()
    digest = b64encode(hashlib.md5(table).digest()).decode()
    out += call("eval_extrapolation.py", run, *ALONE, "--config.last=4")
    advice = f"wandb: offline, to upload: wandb sync '{run}/wandb'/offline-run-*\n"
    assert out.count("to upload") == out.count(advice) == 4
    identity = (run / "wandb_id").read_text()
    names = {path.name for path in run.glob("wandb/offline-run-*/*.wandb")}
    trained = f"run-{identity}.wandb"
    assert [path.name == trained for path in paths] == [True, True, False] and len(names) == 3
    for _ in range(30):  # wandb's own process may still be writing
        parts = [written(path) for path in paths]
        if all(codes and summary for _, _, summary, _, codes in parts):
            break
        time.sleep(1)
    assert [codes for *_, codes in parts] == [[75], [0], [0]]
    *trained, (_, metrics, summary, history, _) = parts
    settings = trained[0][0]
    assert settings.display_name == "run of mine" and settings.job_type == "train"
    assert parts[2][0].job_type == "eval" and parts[2][0].run_group == settings.run_group
    keys = {item.key for item in settings.config.update}
    assert {"encoding", "model", "seed", "train_length"} <= keys
    lines = [
        {f"train/{name}": value for name, value in line.items() if value is not None}
        for line in read_metrics(run / "metrics.jsonl")
    ]
    assert [row for part in trained for row in part[3] if row] == lines

    assert metrics["extrap/*"] == "eval/length"
    points = {row["eval/length"]: row for row in history if "eval/length" in row}
    assert {length: row["eval/multiple"] for length, row in points.items()} == {32: 1.0, 64: 2.0}
    for row in rows:
        name = "window" if row["window"] else row["extension"]
        label = f"{name}:{float(row['scale']):g}" if row["scale"] else name
        key = f"extrap/{row['protocol']}/{label}"
        assert points[int(row["length"])][key] == pytest.approx(float(row["bpb"]))
        assert points[int(row["length"])][f"{key}/ppl"] == pytest.approx(float(row["ppl"]))
        at = f"extrap/{row['protocol']}/{name}@{int(row['length']) / 32:g}x"
        assert summary[at] == pytest.approx(float(row["bpb"]))
    (media,) = [row for row in history if "eval/curves/nrows" in row]
    uploads = (one.artifact for one in wandb_records(paths[-1]))
    (kept,) = [one for one in uploads if one.type == "curves"]
    assert [(one.path, one.digest) for one in kept.manifest.contents] == [("curves.csv", digest)]
    assert media["eval/curves/nrows"] == len(rows) and media["plots/same_token/format"] == "png"


def test_each_trial_of_a_sweep_is_trained_and_evaluated_in_one_run(
    call, started, environment, tmp_path
):
    """wandb's agent starts one command with another id and other arguments each time."""
    for trial, rate in (("first", 0.1), ("second", 0.2)):
        environment(SWEEP_ID="sweep", RUN_ID=trial)
        fields = ONLINE | {"learning_rate": rate}
        call("train.py", tmp_path / "runs", *EVALUATE, *SHORT, **fields)
        run = tmp_path / "runs" / trial
        assert json.loads((run / "config.json").read_text())["learning_rate"] == rate
        trained, one = started[-2:]
        assert one["id"] == trained["id"] == trial and one["resume"] == "allow"
        assert one["run"].codes == trained["run"].codes == [0]
        assert one["run"].summary[METRIC] == pytest.approx(bits(run))
        assert trained["run"].summary["exit_code"] == 0
        assert any("train/loss" in values for values in trained["run"].points)
        assert any("extrap/same_token/none" in values for values in one["run"].points)
        assert one["run"].metrics["extrap/*"] == {"step_metric": "eval/length"}
        assert one["config"]["evaluation"]["step"] == 3
        assert one["config"]["model"]["vocab"] == 256  # what training found stays
    assert sorted(os.listdir(tmp_path / "runs")) == ["first", "second"]
    out = call("train.py", tmp_path / "runs", *EVALUATE, *SHORT, **fields)
    call("eval_extrapolation.py", run, *ALONE)
    assert "already done" in out and len(started) == 4  # the same curves, once


def test_a_run_is_evaluated_in_its_wandb_run_once_it_is_done(call, started, tmp_path):
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
    one = started[2]["run"]
    call("train.py", run, *EVALUATE, *SHORT, "--evaluate.last=4", **ONLINE)
    *_, other = started  # points cannot be changed: other curves are another run
    assert len(started) == 4 and other["id"] != started[0]["id"]
    assert other["run"].summary[METRIC] == pytest.approx(bits(run)) != one.summary[METRIC]


def test_a_trial_of_a_rate_has_a_job_and_a_tag_that_the_chosen_one_loses(
    call, started, environment, tmp_path
):
    environment(TAGS="theirs,paper")
    run = tmp_path / "run"
    call("train.py", run, **ONLINE | {"wandb.job": "tuning"})
    call("train.py", run, *EVALUATE, *SHORT, **ONLINE)
    assert [one["job_type"] for one in started] == ["tuning", "train", "train"]
    own = ["rope", "text", "1x16"]
    assert [one["tags"] for one in started] == [
        [*own, *more, "theirs", "paper"] for more in (["tuning"], [], [])
    ]
    assert len({one["id"] for one in started}) == 1 and not started[1]["run"].points


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--evaluate.extension=none"], "unknown field 'extension'; did you mean 'extensions'"),
        (["--evaluate.wandb.mode=offline"], "--evaluate.wandb has no effect"),
        (["--evaluate.documents=9", "--config.distributed=True"], "--evaluate is for one process"),
    ],
)
def test_a_mistake_in_the_evaluation_is_refused_before_training(words, message, call, tmp_path):
    out = call("train.py", tmp_path / "run", *words, code=2)
    assert message in out and not (tmp_path / "run").exists()


@pytest.mark.parametrize("calls", [0, 6, 9])
def test_wandb_may_break_at_any_call(calls, call, started, whole, tmp_path):
    """While the run trains, and while its curves are logged."""
    words = [*EVALUATE, *SHORT]
    started.calls = calls
    out = call("train.py", tmp_path / "with", *words, **{"wandb.mode": "online"})
    assert out.count("wandb failed and is off from here") == 1 + (calls < 8)
    assert bits(tmp_path / "with") > 0
    one, other = (
        (
            json.loads((run / "status.json").read_text())["digest"],
            [line["step"] for line in read_metrics(run / "metrics.jsonl")],
        )
        for run in (whole[0], tmp_path / "with")
    )
    assert one == other
    started.calls = calls
    fields = {"wandb.mode": "online", "wandb.required": True}
    out = call("train.py", tmp_path / "required", *words, code=74, **fields)
    assert "wandb failed and wandb.required is set: the service is gone" in out
    started.calls = 1_000
    call("train.py", tmp_path / "required", *words, **fields)
    assert METRIC in started[-1]["run"].summary


@pytest.mark.slow
def test_wandb_may_be_killed_from_outside(program, tmp_path):
    process = program("train.py", tmp_path / "run", **{"wandb.mode": "offline", "steps": 3_000})
    metrics, children = tmp_path / "run" / "metrics.jsonl", ["ps", "--ppid", str(process.pid)]
    service = None
    while service is None or not metrics.exists() or not read_metrics(metrics):
        assert process.poll() is None, process.communicate()[0]
        listed = subprocess.run([*children, "-o", "pid=,comm="], capture_output=True, text=True)
        service = re.search(r"(\d+) \S*wandb", listed.stdout)
        time.sleep(0.02)
    os.kill(int(service[1]), signal.SIGKILL)
    while (last := read_metrics(metrics)[-1]["step"]) < 60:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out = finish(process, 75)
    assert out.count("wandb failed and is off from here") == 1 and "Traceback" not in out
    lines = [line["step"] for line in read_metrics(metrics)]
    assert lines == sorted(set(lines)) and lines[-1] >= last
    assert set(range(3, lines[-1], 3)) <= set(lines)


def test_the_documented_sweep_is_a_command_that_runs():
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

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
    check.refuse_unfit(check.load(evaluation, more=wrong), load(recipe, more=problems))
    _, protocol, method = sweep["metric"]["name"].split("/")
    extension, _, multiple = method.partition("@")
    assert protocol in evaluation.protocols.split(",")
    assert extension in evaluation.extensions.split(",")
    assert multiple.removesuffix("x") in evaluation.multiples.split(",")


def test_scales_parts_and_windows_are_keys_in_wandb_of_their_own(tmp_path):
    run = make_run(tmp_path / "run", "rope", 0)
    rows = records.rows(records.read_cells(run / "eval"))
    row = next(row for row in rows if row["length"] == row["train_length"])
    row |= {"extension": "none", "scale": None, "protocol": "gap"}
    several = [
        *(row | {"part": part, "window": size} for part in ("1-2", "3-4") for size in (None, 8)),
        *(row | {"extension": "yarn", "scale": scale, "part": ""} for scale in (2.0, 1.5)),
        row | {"extension": "window", "protocol": "same_token", "part": "", "window": 4},
    ]
    keys = set(summary_of([row | {"method": label(row)} for row in several]))
    assert keys == {
        *(f"extrap/gap/{part}/{name}@1x" for part in ("1-2", "3-4") for name in ("none", "window")),
        *(f"extrap/gap/{name}@1x" for name in ("yarn", "yarn:1.5")),
        "extrap/same_token/window:size=4@1x",
    }
