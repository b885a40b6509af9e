"""Adding a protocol is one file, shown on a copy of the project: it is checked, evaluated, drawn,
reported and tested, and the numbers of the others stay as they are."""

import csv
import json
import os
import shutil
import subprocess
import sys

import pytest
from running import ROOT

LAST_THREE = '''"""Written by a test: the last three targets of each longest window."""

import numpy as np

from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.windows import plan_of


class LastThree(Protocol):
    title = "the last three targets"
    order = 9

    def plan(self, text, length, span):
        offsets = np.full((len(text.starts), 1), text.longest - length)
        return plan_of(text, length, offsets, length - self.scored(text, span))

    def scored(self, text, span):
        return 3


protocol = LastThree()
'''
DOUBLED = '''"""Written by a test, as is its text: that of the evaluation, every token twice."""

import dataclasses

import numpy as np

from posenc_jax.evaluation.protocols.nonoverlap import NonOverlap


class Doubled(NonOverlap):
    title = "a text of its own, in which every token comes twice"
    order = 10

    def text(self, text, subject, lengths):
        split = text.split
        tokens = np.repeat(split.tokens, 2)
        starts = 2 * np.asarray(split.starts)
        own = dataclasses.replace(split, tokens=tokens, starts=starts, bytes_of=None)
        whole = dataclasses.replace(text, split=own, starts=2 * text.starts, source="doubled")
        return whole


protocol = Doubled()
'''
PROTOCOLS = "same_token,nonoverlap,sliding,position"


@pytest.fixture
def copy(tmp_path):
    """The project with two more protocols, each a file."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("posenc_jax", "models", "configs", "scripts", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.py"), ROOT / "pyproject.toml"):
        shutil.copy(path, folder)
    place = folder / "posenc_jax" / "evaluation" / "protocols"
    (place / "last_three.py").write_text(LAST_THREE)
    (place / "doubled.py").write_text(DOUBLED)
    return folder


def run(copy, *words, code=0):
    environment = os.environ | {"PYTHONPATH": str(copy), "COVERAGE_PROCESS_START": ""}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def rows_of(workdir):
    with (workdir / "eval" / "curves.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_a_new_protocol_is_evaluated_and_reported_with_no_other_edit(copy, call, whole, tmp_path):
    here, there = tmp_path / "here" / "run", tmp_path / "there" / "run"
    for workdir in (here, there):
        shutil.copytree(whole[0], workdir)
    words = ["--config.multiples=0.5,1,2", "--config.extensions=none,yarn", "--config.documents=2"]
    call("eval_extrapolation.py", here, *words, f"--config.protocols={PROTOCOLS}")
    words = [f"--workdir={there}", *words]
    more = f"--config.protocols={PROTOCOLS},last_three,doubled"
    out = run(copy, "eval_extrapolation.py", *words, more)
    assert "last_three, the last three targets" in out
    old, new = rows_of(here), rows_of(there)
    added = [row for row in new if row["protocol"] in ("last_three", "doubled")]
    assert [row for row in new if row not in added] == old  # to the last digit
    for name, text in (("last_three", old[0]["text"]), ("doubled", "doubled")):
        chosen = [row for row in added if row["protocol"] == name]
        assert {row["length"] for row in chosen} == {"16", "32", "64"}
        assert {row["text"] for row in chosen} == {text}
        assert len({row["token_hash"] for row in chosen}) == 1
        assert all(row["null_nll"] for row in chosen if row["length"] == "64")
    hashes = {r["token_hash"] for r in added} & {r["token_hash"] for r in old}
    assert not hashes
    pictures = {path.stem for path in (there / "plots").glob("*.png")}
    assert {"last_three", "doubled", "same_token"} <= pictures
    run(copy, "scripts/report.py", there, f"--out={tmp_path / 'page'}", "--wandb=disabled")
    page = (tmp_path / "page" / "index.html").read_text()
    assert "last_three: the last three targets" in page
    assert (tmp_path / "page" / "doubled.png").exists()
    assert "last_three" in run(copy, "scripts/compare.py", there, f"{there}@yarn")
    misspelt = [*words, "--config.protocols=last_thre"]
    assert "did you mean 'last_three'?" in run(copy, "eval_extrapolation.py", *misspelt, code=2)
    assert json.loads((there / "status.json").read_text())["state"] == "done"


@pytest.mark.slow
def test_the_tests_of_protocols_take_up_a_new_one(copy):
    names = (
        "evaluation/test_windows evaluation/test_records evaluation/test_evaluation test_configs"
    )
    names += " plots/test_curves report/test_gather report/test_ranking report/test_page"
    names += " test_configs test_imports"
    tests = [f"tests/unit/{name}.py" for name in names.split()]
    out = run(copy, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests)
    assert int(out.rsplit(" passed", 1)[0].split()[-1]) >= 150, out
