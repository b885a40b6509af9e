"""Programs run by tests as a user runs them, on a text of a few kilobytes."""

import io
import os
import re
import runpy
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
TINY = {
    "model.width": 16,
    "model.heads": 2,
    "model.layers": 1,
    "train_length": 32,
    "batch_size": 4,
    "accumulate": 2,
    "steps": 12,
    "warmup_steps": 2,
    "log_every": 3,
    "valid_every": 5,
    "valid_batches": 2,
    "save_every": 4,
    "data.source": "text",
    "data.valid_fraction": 0.3,
    "wandb.mode": "disabled",
}
CLOSED = "http://127.0.0.1:9"  # where no Hub answers
EVALUATION = [
    "--config.multiples=0.5,1,2",
    "--config.extensions=none,yarn,pi:3,dynamic_ntk",
    "--config.protocols=same_token,nonoverlap,sliding,position",
]


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Eight short documents: 12 training steps are more than an epoch."""
    folder = tmp_path_factory.mktemp("text")
    for i in range(8):
        letters = np.random.default_rng(i).choice(list("abcdefgh "), 240)
        (folder / f"{i}.txt").write_text("".join(letters))
    return folder


def finish(process, code=0):
    out = process.communicate()[0]
    assert process.returncode == code, out
    return out


def python(*words, code=0, cwd=ROOT, env=None):
    """Run a fresh interpreter, check its exit code and return its output."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def here(name, *words, code=0):
    """Run a program in this process, check its exit code and return its output."""
    out, err, argv = io.StringIO(), io.StringIO(), [name, *map(str, words)]
    with redirect_stdout(out), redirect_stderr(err), chdir(ROOT), patch.object(sys, "argv", argv):
        with pytest.raises(SystemExit) as end:
            runpy.run_path(name, run_name="__main__")
    said = out.getvalue() + err.getvalue()
    assert (end.value.code or 0) == code, said
    return said


def script(name, *words, code=0):
    return here(f"scripts/{name}", *words, code=code)


def tracked(*folder):
    """The committed files, by their paths; skips a test that is not in a git checkout."""
    words = ["git", "ls-files", "/".join(folder) or "."]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode or not done.stdout:
        pytest.skip("not a git checkout: cannot list the committed files")
    return done.stdout.splitlines()


def committed(names, *folder):
    """Drop the names of uncommitted files, which need no row in the docs yet."""
    listed = tracked(*folder)
    text = "".join((ROOT / line).read_text() for line in listed)
    files = {Path(line).stem for line in listed}
    return [n for n in names if n in files or re.search(rf"^def {n}\(", text, re.M)]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB; skips the test where mounting is not allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
