"""Command lines and their output: numbers, paths, defaults, runs by folder, tables that fit."""

import json
import re
import subprocess
import sys

import pytest
from running import ROOT, here

from posenc_jax import display
from posenc_jax.config import flags
from posenc_jax.runs.workdir import KEPT_FACTS

ROPE = f"--config={ROOT}/configs/rope.py"


def read(*words):
    _, recipe, problems = flags.parse(["train.py", *words])
    assert not problems
    return recipe


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        ("--config.steps=1e3", "steps", 1000),
        ("--config.steps=200.0", "steps", 200),
        ("--config.learning_rate=1e-3", "learning_rate", 1e-3),
        ("--config.learning_rate=1e1", "learning_rate", 10.0),
        ("--config.wandb.name=1e3", "wandb.name", "1e3"),
        ("--config.data.path=1e3", "data.path", "1e3"),
        ("--config.model.kv_heads=2e0", "model.kv_heads", 2),
        ("--config.encoding.base=1e6", "encoding.base", 1e6),
    ],
)
def test_a_number_is_a_number_where_one_is_wanted(word, name, value):
    config = read(ROPE, word)
    found = config[name] if "." not in name else config[name.split(".")[0]][name.split(".")[1]]
    assert found == value and type(found) is type(value)


def test_a_flag_and_its_value_may_be_two_words():
    config = read("--config", f"{ROOT}/configs/rope.py", "--config.steps", "7")
    assert config.steps == 7 and config.encoding.name == "rope"


@pytest.mark.parametrize(
    ("field", "value"), [("data.older", "1,1"), ("model.kv_heads", 2), ("encoding.keep", 0.5)]
)
def test_a_field_that_is_none_by_default_is_unset_again(field, value):
    group, name = field.split(".")
    recipe = f"--config={ROOT}/configs/ordered.py:rope"
    assert read(recipe, f"--config.{field}={value}")[group][name] == value
    assert read(recipe, f"--config.{field}={value}", f"--config.{field}=None")[group][name] is None


def test_a_recipe_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read("--config=configs/rope.py:small").model.width == 384
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "rope.py").write_text(
        "from posenc_jax.config import schema\n\n\ndef get_config():\n"
        "    config = schema.training()\n    config.steps = 3\n    return config\n"
    )
    assert read("--config=configs/rope.py").steps == 3  # one's own comes first


@pytest.mark.parametrize("evaluation", [False, True])
def test_a_recipe_of_a_few_fields_is_refused(evaluation, tmp_path):
    (tmp_path / "few.py").write_text(
        "from ml_collections import ConfigDict\n\n\ndef get_config():\n"
        "    return ConfigDict({'seed': 1, 'protocols': 'same_token'})\n"
    )
    command = flags.parse(["a program", f"--config={tmp_path}/few.py"], evaluation=evaluation)
    (problem,) = command.problems
    assert re.search("every field.*missing: .*wandb", problem)


@pytest.mark.parametrize("program", ["train.py", "scripts/report.py"])
def test_a_reader_that_leaves_is_no_error(program):
    command = f"{sys.executable} {ROOT}/{program} --help | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == "" and len(done.stdout.splitlines()) == 1


def test_the_folder_of_a_run_is_enough_to_resume_it(call, tmp_path):
    run = tmp_path / "run"

    def resume(*words, code=0, folder=run):
        return here("train.py", f"--workdir={folder}", *words, code=code)

    out = call("train.py", run, stop_at=4, code=75)
    assert len(out.partition("step ")[0].splitlines()) <= 20
    out = resume()
    assert "resuming at step 4" in out and "done: 12 steps" in out
    assert "done: 14 steps" in resume("--config.steps=14", "--config.save_every=7")
    assert "seed: 0 in the workdir, 1 now" in resume("--config.seed=1", code=76)
    out = resume(folder=tmp_path / "none", code=2)
    assert "--workdir alone resumes a run, and there is none in it" in out
    assert (
        set(KEPT_FACTS) - {"skipped", "evaluated"}
        <= json.loads((run / "status.json").read_text()).keys()
    )
    out = call("eval_extrapolation.py", run, "--config.multiples=0.25,0.5,1,2,4")
    tables = out[out.index("same_token, ") :].partition("/eval/")[0].splitlines()[:-1]
    assert max(map(len, tables)) <= display.LINE
