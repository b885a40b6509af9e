"""Sweeps: grids, names, retries, the table, and whole sweeps of tiny runs."""

import errno
import io
import json
import os
import signal
import time

import pytest
from launchers import Pretend
from rich.console import Console
from running import ROOT

from configs.sweeps import stages
from posenc_jax.config import schema
from posenc_jax.config.resolve import FORMAT
from posenc_jax.registry import encodings
from posenc_jax.runtime import errors
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.sweeping import grid, run, slurm
from posenc_jax.sweeping.jobs import Job, jobs_of, name_of
from posenc_jax.sweeping.launch import Local, share
from posenc_jax.sweeping.rates import Plan
from posenc_jax.sweeping.run import LiveTable, Scheduler, live_table
from scripts.sweep import main


def test_grids_are_lists_of_jobs():
    seeds, widths = grid.axis("seed", range(2)), grid.axis("model.width", [8, 16])
    every = [{"seed": seed, "model.width": width} for seed in (0, 1) for width in (8, 16)]
    assert grid.product(seeds, widths) == every
    assert grid.zip(seeds, widths) == [every[0], every[3]]
    assert grid.chain(seeds, widths) == [*seeds, *widths]
    with pytest.raises(ValueError, match="zip takes grids of equal size; got 2, 3 jobs"):
        grid.zip(seeds, grid.axis("steps", range(3)))
    with pytest.raises(ValueError, match="seed is set by more than one"):
        grid.product(seeds, seeds)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"recipe": "configs/rope.py", "seed": 0}, "rope-s0"),
        ({"seed": 3, "recipe": "configs/rope.py:small"}, "rope-small-s3"),
        ({"recipe": "configs/rope.py", "label": "RoPE", "seed": 0}, "rope-s0"),
        ({"recipe": "x/alibi.py", "train_length": 256}, "alibi-L256"),
        ({"encoding.base": 5e5, "data.path": "a/b *.txt"}, "base=500000.0-path=a_b_.txt"),
    ],
)
def test_names_can_be_read(fields, name):
    assert name_of(fields) == name


def test_a_grid_that_grows_renames_nothing(tmp_path):
    def named(seeds):
        made = {"recipe": "configs/rope.py", "grid": grid.axis("seed", range(seeds))}
        return [job.name for job in jobs_of(made, tmp_path)]

    assert named(3)[:1] == named(1)
    with pytest.raises(ConfigError, match="two jobs of the grid have the name 's0'"):
        jobs_of({"recipe": "configs/rope.py", "grid": [{"seed": 0}, {"seed": 0}]}, tmp_path)
    with pytest.raises(ConfigError, match="no recipe"):
        jobs_of({"grid": [{"seed": 0}]}, tmp_path)


def test_cores_are_shared_without_overlap():
    parts = [share(list(range(7)), place, 3) for place in range(3)]
    assert sum(parts, []) == list(range(7)) and all(parts)


def test_no_more_jobs_run_than_there_are_gpus_or_cores(monkeypatch):
    for gpus, workers in (("1,3", 2), ("-1", len(os.sched_getaffinity(0)))):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
        assert Local(10_000).workers == workers


@pytest.fixture
def at_once(monkeypatch):
    for seconds in ("PAUSE", "POLL"):
        monkeypatch.setattr(run, seconds, 0.0)


TWO = {"grid": [{"recipe": f"configs/{name}.py"} for name in ("rope", "nope")]}


def scheduler(made, folder, launcher):
    return Scheduler(Plan(jobs_of(made, folder), folder), launcher)


@pytest.fixture
def sweep(tmp_path, at_once, capsys):
    def make(codes, names="ab"):
        for name in names:
            (tmp_path / f"{name}.py").write_text("from configs.rope import get_config")
        made = {
            "grid": [{"recipe": str(tmp_path / f"{name}.py")} for name in names],
            "fields": {"steps": 4},
            "evaluation": {"multiples": "1,2"},
        }
        launcher = Pretend(codes)
        one = scheduler(made, tmp_path, launcher)
        code = one.run([], lambda _: None)
        return code, launcher.started, capsys.readouterr().out, one

    return make


def test_each_job_runs_once(sweep):
    code, started, said, _ = sweep({})
    assert code == errors.DONE
    assert sorted(started) == ["a", "b"]
    assert "[2/2]" in said
    code, started, said, _ = sweep({})
    assert (code, started) == (errors.DONE, []) and said.count("done already") == 2
    code, started, _, _ = sweep({}, names="abc")
    assert code == errors.DONE and started == ["c"]


def test_a_job_waits_for_the_run_that_it_goes_on_from(tmp_path, at_once):
    runs = [{"recipe": "configs/rope.py", "seed": seed} for seed in range(3)]
    runs[1]["anneal"] = os.path.relpath(tmp_path / "rope-s0")
    launcher = Pretend()
    made = {"grid": runs, "fields": {"steps": 4, "schedule": "linear"}}
    assert scheduler(made, tmp_path, launcher).run([], lambda _: None) == 0
    assert launcher.started == ["rope-s0", "rope-s2", "rope-s1"]


def test_steps_may_come_from_the_command_line_as_text(sweep, tmp_path):
    sweep({})
    made = {"grid": [{"recipe": str(tmp_path / "a.py")}], "evaluation": {"multiples": "1,2"}}
    for text in ("4", "4.0"):
        (job,) = jobs_of(made, tmp_path, [("steps", text)])
        assert job.is_done()
    (job,) = jobs_of(made, tmp_path, [("steps", "5")])
    assert not job.is_done()


def test_a_command_that_ends_well_and_leaves_nothing_is_a_failure(sweep, monkeypatch):
    monkeypatch.setattr(Job, "status", lambda self: {})
    code, started, said, _ = sweep({})
    assert code == errors.FAULT and started.count("a") == 3
    assert "exited with 0 but left no result" in said


def test_a_job_with_another_evaluation_or_other_curves_runs_again(sweep, tmp_path):
    sweep({})
    status = tmp_path / "a" / "status.json"
    status.write_text(status.read_text().replace("1,2", "1,4"))
    assert sweep({})[1] == ["a"]
    (tmp_path / "b" / "eval" / "curves.csv").write_text("of an evaluation by hand")
    assert sweep({})[1] == ["b"]


def test_a_folder_that_is_busy_is_waited_for(sweep, monkeypatch):
    code, started, said, _ = sweep({"a": [errors.BUSY] * 5})
    assert code == errors.DONE and started.count("a") == 6
    assert said.count("waiting for another process") == 1
    monkeypatch.setattr(run, "BUSY_TRIES", 5)
    code, started, said, _ = sweep({"c": [errors.BUSY] * 99}, names="cd")
    assert code == errors.BUSY and "c: FAILED" in said and "d" in started


def test_the_reason_is_of_the_last_attempt_and_whole(tmp_path):
    (tmp_path / "rope.py").write_text("from configs.rope import get_config")
    (job,) = jobs_of({"grid": [{"recipe": str(tmp_path / "rope.py")}]}, tmp_path)
    job.folder.mkdir()
    job.log.write_text("error: of yesterday\n")
    progress = run.Progress(job, log_from=job.log.stat().st_size)
    why = "error: it belongs to another:\n  seed: 0 there, 1 here\nuse another\n"
    job.log.write_text(f"{job.log.read_text()}step 1\n{why}")
    said = run.reason_of(progress, errors.IO)
    assert said.endswith("error: it belongs to another:; seed: 0 there, 1 here; use another")
    status = {"state": "failed", "code": errors.IO, "reason": "no room\nfor a checkpoint"}
    (job.folder / "status.json").write_text(json.dumps(status))
    assert run.reason_of(progress, errors.IO).endswith("error: no room; for a checkpoint")
    progress.before = status  # written by an earlier attempt
    assert "belongs to another" in run.reason_of(progress, errors.IO)


def test_a_job_that_exits_with_75_runs_again(sweep):
    code, started, said, _ = sweep({"a": [errors.AGAIN] * 6})
    assert code == errors.DONE and started.count("a") == 7 and "retrying" not in said


def test_a_job_that_exits_with_75_without_progress_fails(sweep, monkeypatch):
    monkeypatch.setattr(Job, "status", lambda self: {"state": "stopped", "saved": 0})
    code, started, said, _ = sweep({"a": [errors.AGAIN] * 99, "b": [errors.AGAIN] * 99})
    assert code == errors.AGAIN
    assert started.count("a") == 3 and "a: FAILED" in said


def test_a_failure_is_retried_then_reported_while_other_jobs_run(sweep):
    code, started, said, _ = sweep({"a": [errors.FAULT, -signal.SIGKILL]})
    assert code == errors.DONE and started.count("a") == 3
    assert "killed by SIGKILL" in said and "retrying" in said
    code, started, said, one = sweep({"c": [errors.IO] * 9}, names="cd")
    assert code == errors.IO and started.count("c") == 3
    assert "d" in started
    assert "c: FAILED" in said and "ended with 74 (input or output): error: it ended" in said
    assert {p.job.name: p.state for p in one.all} == {"c": "failed", "d": "done"}


@pytest.mark.parametrize("code", [2, 65, 70, 76])
def test_a_mistake_is_not_tried_again(sweep, code):
    found, started, said, _ = sweep({"a": [code] * 9})
    assert found == code and started.count("a") == 1 and "a: FAILED" in said


@pytest.mark.parametrize("by", ["SIGTERM", "--minutes"])
def test_a_stop_waits_for_what_runs_and_starts_nothing_more(by, tmp_path, at_once, capsys):
    stopped, shown = [], []

    class Slow:
        workers = 1

        def launch(self): ...

        def start(self, name, command, log):
            def poll(self):
                return errors.AGAIN if stopped else None

            def stop(self):
                stopped.append(name)

            return type("Task", (), {"poll": poll, "stop": stop})()

    stopping, one = [], scheduler(TWO, tmp_path, Slow())
    if by == "SIGTERM":
        code = one.run(stopping, lambda _: stopping.append(by))
    else:
        code = one.run(stopping, shown.append, until=time.monotonic() + 0.2)
    assert (code, stopped) == (errors.AGAIN, ["rope"])
    said = capsys.readouterr().out
    assert f"stopping by {by}: running jobs save first\n" in said
    assert said.endswith("stopped; the same command resumes\n")
    assert [p.state for p in one.all] == ["stopped", "waiting"]
    assert one.run([], shown.append, until=0.0) == errors.AGAIN and stopped == ["rope"]


def test_the_table_of_a_stopped_sweep_says_so_until_its_end(tmp_path, at_once):
    class Saving:
        workers, launch, start = 1, lambda self: None, lambda self, *_: self
        asked = ended = False

        def poll(self):
            return errors.AGAIN if self.ended else None

        def stop(self):
            self.asked = True

    task, file, frames = Saving(), io.StringIO(), []
    one, stopping = scheduler(TWO, tmp_path, task), []

    def show(scheduler):
        display(scheduler)
        frames.append(file.getvalue())
        task.ended = task.asked and len(frames) > 5
        stopping.extend(["SIGINT"] * (len(frames) == 2))

    with LiveTable(Console(file=file, width=80, force_terminal=True)) as display:
        assert one.run(stopping, show) == errors.AGAIN
    said, _, after = file.getvalue().partition("stopping by SIGINT")
    assert "training" in said and "training" not in after
    saving, _, end = after.partition("stopped; the same command resumes")
    assert "stopping" in saving and "stopping" not in end and "stopped" in end


def drawn(one, most=20):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    console.print(live_table(one, most))
    return console.file.getvalue().splitlines()


def test_the_zoo_has_every_encoding_with_three_seeds(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    command = ["sweep.py", "--config=configs/sweeps/zoo.py", f"--workdir={tmp_path}", "--list"]
    assert main(command) == errors.DONE
    jobs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert len(jobs) == 3 * len(encodings()) and "# rope-s2: to run" in jobs


def test_the_table_shows_what_runs_first_and_counts_the_rest(sweep):
    *_, one = sweep({"b": [errors.CONFIG]}, names="abcd")
    rows = drawn(one, most=1)
    assert rows[0].startswith("4 runs: 1 failed, 3 done")
    assert len(rows) == 3 and rows[2].split() == ["b", "failed"]


def test_the_table_fits_80_columns_with_whole_names_and_says_what_a_job_does(sweep):
    *_, one = sweep({}, names=["a" * 60 + end for end in "xy"])
    metrics = {"step": 123_456, "loss": 12.5, "tokens": 1e9, "tokens_per_second": 1_234_567.8}
    for progress in one.all:
        progress.state, folder = "running", progress.job.folder
        (folder / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    (one.all[0].job.folder / "status.json").unlink()
    rows = drawn(one)
    assert max(map(len, rows)) <= 80
    words = [row.split() for row in rows[2:]]
    names = "".join(row[0] for row in words)
    assert names == "a" * 60 + "x" + "a" * 60 + "y"
    assert {"training", "123456/4", "12.5000", "1,234,568"} <= set(words[0])
    assert "evaluating" in "\n".join(rows)


def test_output_appears_above_the_table_and_a_closed_terminal_is_ignored(sweep, monkeypatch):
    *_, one = sweep({})
    file = io.StringIO()
    with LiveTable(Console(file=file, width=80, force_terminal=True)) as display:
        display(one)
        print("a line")
    said = file.getvalue()
    assert said.index("2 runs: 2 done") < said.index("a line") < said.rindex("2 runs: 2 done")

    def closed(text):
        raise OSError(errno.EIO, "Input/output error")

    silenced = []
    monkeypatch.setattr("posenc_jax.sweeping.run.silence", silenced.append)
    with LiveTable(Console(file=io.StringIO(), width=80, force_terminal=True)) as display:
        monkeypatch.setattr(display.live.console.file, "write", closed, raising=False)
        display(one)
        monkeypatch.undo()
    assert len(silenced) == 1


def test_nothing_is_drawn_where_there_is_no_terminal(sweep):
    *_, one = sweep({})
    file = io.StringIO()
    with LiveTable(Console(file=file)) as display:
        display(one)
    assert file.getvalue() == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config=nothing.py"], "there is no such sweep file"),
        (["--workers=0"], "--workers must be at least 1; got 0"),
        (["--minutes=0"], "--minutes must be above 0; got 0"),
        (["steps=3"], "unknown argument 'steps=3'"),
        (["--config.seed=7"], "--config.seed=7 would override seed of the grid"),
        (["--config.model.widht=32"], "unknown field"),
        (
            ["--config.batch_size=0"],
            ", ".join(f"{name}-s0" for name in sorted(encodings())[:3])
            + f" and {3 * len(encodings()) - 3} more: batch_size must",
        ),
        (["--config=configs/rope.py"], "must return a dict with a grid"),
    ],
)
def test_mistakes_are_said_at_once(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    command = ["sweep.py", "--config=configs/sweeps/zoo.py", f"--workdir={tmp_path}", *words]
    assert main(command) == errors.CONFIG
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("axes('seed', range(3))", "line 5: NameError"),
        ("axis('seed', 'abc')", "line 5: "),  # of the file, not of what it calls
        ("None", "must return a dict with a grid"),
        ("{'grid': []}", "the grid is empty"),
        ("{'grid': axis('recipe', 'configs/rope.py')}", "takes a list of values"),
        ("{'grid': ROPE, 'feilds': {}}", "did you mean 'fields'"),
        ("{'grid': ROPE, 'evaluation': {'extensions': 'yarm'}}", "did you mean 'yarn'"),
        ("{'grid': ROPE, 'evaluation': {'multiple': 2}}", "did you mean 'multiples'"),
        ("{'grid': axis('recipe', ['configs/rope.py:huge'])}", "unknown size 'huge'"),
        ("{'grid': axis('recipe', ['configs/rpoe.py'])}", "did you mean configs/rope.py?"),
    ],
)
def test_a_sweep_file_is_checked_before_anything_runs(
    returned, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(ROOT)
    (tmp_path / "file.py").write_text(
        "from posenc_jax.sweeping.grid import axis\n"
        "ROPE = axis('recipe', ['configs/rope.py'])\n\n"
        f"def get_config():\n    return {returned}\n"
    )
    command = ["sweep.py", f"--config={tmp_path / 'file.py'}", f"--workdir={tmp_path / 'runs'}"]
    assert main(command) == errors.CONFIG
    said = capsys.readouterr().err
    assert message in said and not (tmp_path / "runs").exists()


def test_other_fields_over_finished_runs_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    made = {"grid": [{}], "recipe": "configs/rope.py"}
    (tmp_path / "sweep.py").write_text(f"def get_config():\n    return {made}")
    command = ["sweep.py", f"--config={tmp_path / 'sweep.py'}", f"--workdir={tmp_path}", "--list"]
    (job,) = jobs_of(made, tmp_path)
    job.folder.mkdir()
    trained = schema.as_fields(job.config)
    trained["model"]["vocab"] = 256  # as training makes it
    trained["init_from"], trained["original_length"] = "runs/x", 128  # of a first command
    del trained["sharding"], trained["model"]["attention"]  # of a run from before there were any
    (job.folder / "config.json").write_text(json.dumps(trained | {"format": FORMAT}))
    assert main(command) == errors.DONE
    assert main([*command, "--config.steps=700"]) == errors.DONE
    assert main([*command, "--config.learning_rate=0.5"]) == errors.OTHER_CONFIG
    said = capsys.readouterr().err
    assert "learning_rate: 0.003 in the workdir, 0.5 now" in said
    assert "use another --workdir" in said


def test_a_job_may_set_fields_of_its_evaluation(tmp_path):
    grid = [{"recipe": "configs/rope.py"}, {"recipe": "configs/t5.py", "evaluation.documents": 9}]
    sweep = {"grid": grid, "evaluation": {"documents": 5, "last": 2}}
    plain, own = jobs_of(sweep, tmp_path)
    assert (plain.name, own.name) == ("rope", "t5")
    assert dict(plain.evaluation) == {"documents": 5, "last": 2}
    assert dict(own.evaluation) == {"documents": 9, "last": 2}
    assert not any(field.startswith("evaluation") for field, _ in own.fields)
    assert own.mistakes() == []


def test_a_job_goes_on_from_a_run_that_another_job_will_make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs = jobs_of(stages.get_config(), tmp_path / stages.FOLDER)
    assert [job.mistakes() for job in jobs] == [[], [], []]
    assert [job.sources for job in jobs] == [set(), {jobs[0].folder}, {jobs[1].folder}]
    last = jobs[2].config
    assert (last.train_length, last.original_length, last.batch_size) == (4096, 128, 1)
    assert last.learning_rate == pytest.approx(3e-3 / 25)
    (problem,) = jobs_of(stages.get_config(), tmp_path / "other")[1].mistakes()
    assert "init_from must be the workdir of a run" in problem


def test_jobs_of_slurm_ask_for_the_devices_that_the_sweep_names(tmp_path, monkeypatch):
    submitit = pytest.importorskip("submitit")
    for module in (slurm, submitit.slurm.slurm):
        monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
    executor = slurm.Slurm(tmp_path, {"nodes": 2, "gpus_per_node": 8}).executor._executor
    lines = executor._make_submission_file_text("python train.py", "a job").splitlines()
    assert {"#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8"} < set(lines)


@pytest.mark.parametrize(
    ("resources", "line"),
    [
        ({"slurm_partition": "gpu", "timeout_min": 30}, "#SBATCH --partition=gpu"),
        ({"timeout_min": "long"}, "error: slurm resources of the sweep file: "),
    ],
)
def test_a_dry_run_prints_the_script_for_sbatch(resources, line, tmp_path, capsys, monkeypatch):
    """Also where there is no SLURM; nothing is written."""
    pytest.importorskip("submitit")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", str(tmp_path))
    grid = [{"recipe": "configs/rope.py", "seed": seed} for seed in range(3)]
    content = {"grid": grid, "slurm": resources}
    (tmp_path / "file.py").write_text(f"def get_config():\n    return {content!r}\n")
    command = ["sweep.py", f"--config={tmp_path / 'file.py'}", f"--workdir={tmp_path / 'runs'}"]
    code = main([*command, "--launcher=slurm", "--dry_run", "--workers=2"])
    said = capsys.readouterr()
    lines = (said.out + said.err).splitlines()
    assert any(one.startswith(line) for one in lines)
    if code == errors.DONE:
        assert lines[0] == "#!/bin/bash" and "#SBATCH --array=0-1%2" in lines
        assert {"#SBATCH --time=30", "#SBATCH --job-name=runs"} < set(lines)
    assert [path.name for path in tmp_path.iterdir()] == ["file.py"]
