"""Command lines and their output: fields, recipes, mistakes, runs by folder, tables that fit."""

import json
import re
import subprocess
import sys
from unittest.mock import patch

import pytest
from running import ROOT, here, python, script

from posenc_jax import display, extensions, schemes
from posenc_jax.config import flags, schema
from posenc_jax.data import prepare as preparing
from posenc_jax.evaluation.protocols import columns
from posenc_jax.runs.workdir import KEPT_FACTS

ROPE, EVAL = f"--config={ROOT}/configs/rope.py", "eval_extrapolation.py"


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
    found = schema.flat(read(ROPE, word))[name]
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


def test_a_recipe_is_found_by_name_anywhere_and_a_misspelt_one_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for written in ("rope", "rope.py", "configs/rope.py", "rope:small"):
        config = read(f"--config={written}")
        assert config.encoding.name == "rope"
    assert config.model.width == 384
    words = ["train.py", "--config=configs/ropee.py", "--config.steps=x"]
    first, second = flags.parse(words).problems
    assert "there is no such recipe; did you mean configs/rope.py? have: alibi, " in first
    assert "steps must be a whole number" in second and "eval" not in first.partition("have:")[2]
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
    out = resume("--config.seed=1", code=76)
    assert "seed: 0 in the workdir, 1 now" in out and "init_from" in out
    recipe = ["--config=configs/rope.py", "--config.wandb.mode=disabled"]
    for more in ([], ["--evaluate=configs/eval.py"]):
        with patch.object(preparing, "prepare", side_effect=AssertionError):  # no text is read
            out = resume(*recipe, *more, code=76)
        assert "leave out --config" in out and "data.source: 'text' in the workdir" in out
        assert re.search(r"  data.path: '.*' in the workdir, None now", out)
        assert "model.vocab" not in out
    out = resume(folder=tmp_path / "none", code=2)
    assert "--workdir alone resumes a run, and there is none in it" in out
    assert set(KEPT_FACTS) - {"evaluated"} <= json.loads((run / "status.json").read_text()).keys()
    out = call("eval_extrapolation.py", run, "--config.multiples=0.25,0.5,1,2,4")
    tables = out[out.index("same_token, ") :].partition("/eval/")[0].splitlines()[:-1]
    assert max(map(len, tables)) <= display.LINE


NAMES = {
    "model.hidden": "'model.width' or 'model.mlp_width'",
    "hidden_size": "'model.width' or 'model.mlp_width'",
    "n_embd": "'model.width'",
    "model.n_layer": "'model.layers'",
    "lr": "'learning_rate'",
    "block_size": "'train_length'",
    "max_iters": "'steps'",
    "rope_theta": "'encoding.base'",
    "rope_type": "'extension.name'",
    "ici_fsdp_parallelism": "'sharding'",
    "hf_name": "'data.name'",
    "train_lenght": "'train_length'",
    "optimizer.rate": "'learning_rate'",
    "data.test_path": "'data.valid_path'",
    "wandb.job_type": "'wandb.job'",
}
OF_WANDB = {"wandb.tags": "WANDB_TAGS", "wandb.entity": "WANDB_ENTITY"}  # variables


def test_names_of_other_projects_are_answered_with_ours(call, tmp_path):
    words = [f"--config.{field}=64" for field in NAMES | OF_WANDB]
    lines = call("train.py", tmp_path / "run", *words, code=2).splitlines()
    answers = [f"did you mean {ours}?" for ours in NAMES.values()]
    answers += [f"set {variable} in the environment;" for variable in OF_WANDB.values()]
    for line, field, answer in zip(lines, NAMES | OF_WANDB, answers, strict=True):
        assert line.startswith(f"error: unknown field {field!r}; {answer}")


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


WITHOUT_JAX = """
import runpy, sys
sys.modules["jax"], sys.argv = None, sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("program", "group", "words"),
    [
        ("train.py", "config", [ROPE]),
        ("train.py", "evaluate", [ROPE, "--evaluate=configs/eval.py"]),
        (EVAL, "config", []),
        ("scripts/prepare_data.py", "config", [ROPE, "--vocab=300", "--out=tokenizer.json"]),
    ],
)
def test_text_that_is_not_there_is_refused_without_jax(program, group, words):
    words = [program, *words, f"--{group}.data.source=text", f"--{group}.data.path=/nowhere/*.txt"]
    if "prepare" not in program:
        words.append("--workdir=run")
    out = python("-c", WITHOUT_JAX, *words, code=65)
    assert out == "error: data.path: nothing matches '/nowhere/*.txt'\n"


@pytest.mark.parametrize(
    ("name", "words", "code", "message"),
    [
        ("train.py", ["--help"], 0, "Exit codes:"),
        (EVAL, ["--help"], 0, "Exit codes:"),
        (
            "train.py",
            ["--config.data.sourec=text"],
            2,
            "unknown field 'data.sourec'; did you mean 'data.source'?",
        ),
        (
            EVAL,
            ["--config.data.limit=9"],
            2,
            "unknown field 'data.limit'; did you mean 'documents'?",
        ),
        (EVAL, ["--confg=1"], 2, "confg"),
        ("train.py", ["--config=configs/rope.py:huge"], 2, "unknown size 'huge'; have: tiny"),
        (EVAL, ["--config=configs/no.py"], 2, "configs/no.py: there is no such file"),
        ("train.py", ["stray"], 2, "stray words: stray"),
        ("train.py", ["--steps=10"], 2, "flag --steps; did you mean --config.steps=10? have: "),
        ("train.py", ["--lr=1"], 2, "did you mean --config.learning_rate=1?"),
        ("train.py", ["--data.path=a.txt"], 2, "did you mean --config.data.path=a.txt?"),
        ("train.py", ["--workdir=~no-one/w"], 2, "there is no home folder ~no-one; ./~no-one/w is"),
        (EVAL, ["--workdir=~no-one/w"], 2, "there is no home folder ~no-one; ./~no-one/w is"),
        ("train.py", ["--workdr=a"], 2, "did you mean --workdir?"),
        (EVAL, ["--extensions=yarn"], 2, "did you mean --config.extensions=yarn?"),
        (
            "train.py",
            ["--config=configs/alibi.py", "--config.encoding.base=500"],
            2,
            "base is an option of fope, hybrid, pope, rope, selective_rope, xpos; alibi has",
        ),
        (
            "train.py",
            ["--config=configs/nope.py", "--config.encoding.slopes=3"],
            2,
            "slopes is an option of alibi; nope has no options",
        ),
    ],
)
def test_help_and_mistakes_answer_in_a_line(name, words, code, message, call):
    assert message in call(name, "w", *words, code=code)


def test_no_script_makes_the_folder_of_an_unknown_user(tmp_path):
    assert "--out: ~no-one/x: there is no home" in script(
        "report.py", tmp_path, "--out=~no-one/x", code=2
    )


def test_every_encoding_extension_and_column_is_listed():
    lines = script("check_config.py", "--list").splitlines()
    for name in (*schemes.names(), *extensions.records()):
        assert any(line.startswith((f"  {name}:", f"  {name} (")) for line in lines), name
    place = next(n for n, line in enumerate(lines) if line.startswith("  yarn (for rope):"))
    assert "2309.00071" in lines[place] and "beta_fast=32.0" in lines[place + 1]
    assert [line.split(":")[0].strip() for line in lines[-len(columns()) :]] == list(columns())


def test_a_configuration_is_checked_without_a_run():
    out = script("check_config.py", "--config=configs/rope.py", "--config.model.width=64")
    assert "213,568  in all" in out  # 4 (4 64^2 + 2 64 256 + 2 64) + 64 257
    assert "memory of a step on a GPU, GiB: in all 0.0758, state 0.00239, activations" in out
    turns = out.splitlines()[-1].split()
    assert len(turns) == 8 and turns[0] == "20.4"
    said = script("check_config.py", "--config=configs/rope.py", "--devices=0", code=2)
    assert "--devices must be at least 1; got 0" in said


@pytest.mark.slow
def test_a_bias_that_cannot_move_is_warned_of():
    said = script("check_config.py", "--config=configs/t5.py", "--config.encoding_rate=1")
    assert "5.55 logits of its bias" in said and "warning" not in said
    silent = ["--config=configs/t5.py", "--config.encoding_rate=1", "--config.encoding.scale=1"]
    said = script("check_config.py", *silent)
    assert "warning: the bias can move by 0.98 logits in this run; below 3 it" in said
    assert "reach" not in script("check_config.py", "--config=configs/rope.py")
