"""Programs, started or run in this process, and a run of theirs."""

import os
import shutil
import subprocess
import sys

import pytest
from running import EVALUATION, ROOT, TINY, finish, here


@pytest.fixture(scope="session")
def command(text):
    def words_of(name, workdir, *words, config="rope", **fields):
        read = {"data.path": f"{text}/*.txt"} if "data.source" not in fields else {}
        fields = TINY | read | {"data.cache": f"{text}/cache"} | fields
        file = config if "/" in config else f"configs/{config}.py"
        recipe = [f"--config={file}"] + [
            f"--config.{k}={v}" for k, v in fields.items() if v is not None
        ]
        return [name, *(recipe if name == "train.py" else []), f"--workdir={workdir}", *words]

    return words_of


@pytest.fixture(scope="session")
def call(command):
    """Run train.py or eval_extrapolation.py in this process."""

    def run(*words, code=0, **fields):
        return here(*command(*words, **fields), code=code)

    return run


@pytest.fixture(scope="session")
def program(text, command):
    """Start a program in a new process."""

    def start(*words, env=None, **fields):
        return subprocess.Popen(
            [sys.executable, *command(*words, **fields)],
            cwd=ROOT,
            env=os.environ | {"NPROC": "1"} | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


@pytest.fixture(scope="session")
def whole(program, tmp_path_factory):
    """One uninterrupted run, the reference for the others."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    out = finish(program("train.py", workdir))
    return workdir, out


@pytest.fixture
def run(whole, tmp_path):
    """A finished run of one's own."""
    left_out = shutil.ignore_patterns("eval", "plots")
    return shutil.copytree(whole[0], tmp_path / "run", ignore=left_out)


@pytest.fixture(scope="session")
def evaluated_once(whole, call, tmp_path_factory):
    """The run and all that its evaluation says."""
    left_out = shutil.ignore_patterns("eval", "plots")
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    shutil.copytree(whole[0], folder, ignore=left_out)
    return folder, call("eval_extrapolation.py", folder, *EVALUATION)


@pytest.fixture
def evaluated(evaluated_once, tmp_path):
    """An evaluated run of one's own."""
    return shutil.copytree(evaluated_once[0], tmp_path / "run")
