"""The first minutes: smoke tests, misspelt words, quick looks and commands that can be pasted."""

import shlex
import shutil
import subprocess

import pandas as pd
from curves import rows_of
from running import ROOT, script

from posenc_jax.config import flags
from posenc_jax.evaluation import records

WORDS = ["--config.multiples=1,2", "--config.extensions=none,yarn:2"]


def test_a_smoke_test_of_five_steps_runs_with_the_usual_warm_up(call, tmp_path):
    out = call("train.py", tmp_path / "run", steps=5, warmup_steps=60)
    assert "warm-up shortened to 1 step, a tenth (warmup_steps = 60)" in out
    assert "done: 5 steps" in out


NAMES = {
    "model.hidden": "'model.width' or 'model.mlp_width'",
    "hidden_size": "'model.width' or 'model.mlp_width'",
    "n_embd": "'model.width'",
    "model.n_layer": "'model.layers'",
    "lr": "'learning_rate'",
    "block_size": "'train_length'",
    "max_iters": "'steps'",
    "rope_theta": "'encoding.base'",
    "train_lenght": "'train_length'",
}


def test_names_of_other_projects_are_answered_with_ours(call, tmp_path):
    words = [f"--config.{field}=64" for field in NAMES]
    lines = call("train.py", tmp_path / "run", *words, code=2).splitlines()
    for line, (field, ours) in zip(lines, NAMES.items(), strict=True):
        assert line.startswith(f"error: unknown field {field!r}; did you mean {ours}?")


def test_all_mistakes_are_reported_together(call, tmp_path):
    mistakes = {
        "steps=many": "steps must be a whole number, such as 600 or 1e3; got 'many'",
        "warmup_steps=1.5": "warmup_steps must be a whole number, such as 600 or 1e3; got '1.5'",
        "learning_rate=fast": "learning_rate must be a number, such as 0.003 or 3e-3; got 'fast'",
        "data.cut_one=maybe": "data.cut_one must be True or False; got 'maybe'",
        "n_head=3": "unknown field 'n_head'; did you mean 'model.heads'? --help lists all fields",
        "seed=-1": "seed must be a whole number of at least 0; got -1",
        "encoding.fraction=0.3": "fraction * head_dim must be an even number from 2 to",
        "data.path=/nowhere/*.txt": "data.path: nothing matches '/nowhere/*.txt'",
    }
    run = tmp_path / "run"
    lines = call("train.py", run, *(f"--config.{word}" for word in mistakes), code=2).splitlines()
    for line, message in zip(lines, mistakes.values(), strict=True):
        assert line.startswith(f"error: {message}")
    assert not run.exists()  # any other configuration may still begin here


def test_a_recipe_is_found_by_name_and_a_misspelt_one_suggested(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for written in ("rope", "rope.py", "configs/rope.py", "rope:small"):
        _, config, problems = flags.parse(["train.py", f"--config={written}"])
        assert config.encoding.name == "rope" and not problems
    words = ["train.py", "--config=configs/ropee.py", "--config.steps=x"]
    first, second = flags.parse(words).problems
    assert "there is no such recipe; did you mean configs/rope.py? have: alibi, " in first
    assert "steps must be a whole number" in second and "eval" not in first.partition("have:")[2]


def test_a_quick_look_reads_one_protocol_and_leaves_the_evaluation_as_it_is(run, call):
    out = call("eval_extrapolation.py", run, *WORDS)
    for cell in ("none at 32", "yarn:2 at 64", "window of 32 at 64"):  # of the bar
        assert f"{cell}: " in out
    before = [row for row in rows_of(run) if row["evaluation"] == "held-out"]
    out = call("eval_extrapolation.py", run, *WORDS, "--quick")
    assert "quick: same_token" in out and "nonoverlap" not in out
    rows = rows_of(run)
    assert [row for row in rows if row["evaluation"] == "held-out"] == before
    (protocol,) = {row["protocol"] for row in rows if row["evaluation"] == "quick"}
    assert protocol == "same_token" and (run / "plots" / "same_token-quick.png").exists()
    out = call("eval_extrapolation.py", run, *WORDS, "--quick", "--config.protocols=nonoverlap")
    assert "quick: nonoverlap" in out and "quick: same_token" not in out  # what is given stays
    usual = "--config.protocols=same_token,nonoverlap,position"
    out = call("eval_extrapolation.py", run, *WORDS, "--quick", usual)
    assert "quick: nonoverlap" in out and "quick: same_token" in out


def test_a_table_of_curves_is_one_pivot(run, call):
    words = ["--config.extensions=none,yarn:2+logn", "--config.protocols=same_token"]
    call("eval_extrapolation.py", run, "--config.multiples=1,2", *words)
    assert records.COLUMNS[37] == "method"  # newer ones come after
    table = pd.read_csv(run / "eval" / "curves.csv").pivot(
        index="method", columns="length", values="bpb"
    )
    assert set(table.index) == {"none", "window", "fresh", "yarn:2+logn"}
    assert list(table) == [32, 64]


def test_the_commands_that_a_sweep_lists_can_be_pasted(tmp_path):
    out = script("sweep.py", "--config=configs/sweeps/demo.py", "--list", f"--workdir={tmp_path}")
    commands = [line for line in out.splitlines() if line and not line.startswith("#")]
    assert len(commands) == 3
    for line in commands:
        python, program, *words = shlex.split(line)
        assert program.endswith("train.py") and "python" in python
        _, config, problems = flags.parse([program, *flags.without_evaluation(words)[0]])
        assert config.steps == 400 and not problems


def test_the_demo_installs_no_tools_of_development(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def planned(target):
        done = subprocess.run(["make", "-n", target], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    demo, test = planned("demo"), planned("test")
    assert "--editable '.[lab]'" in demo and ".[dev]" not in demo
    assert "--editable '.[dev]'" in test
