"""Adding an encoding (with a recipe), an extension, a protocol or a family of models is one file,
whatever helper it is named like: `tests/additions` lies over a copy of the project, whose tests and
programs take it up unedited."""

import json
import shutil
from functools import partial

import pytest
from curves import rows_of
from running import ROOT, TINY, python, tracked

PROTOCOLS = "same_token,nonoverlap,sliding,position"
TESTS = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]


@pytest.fixture
def copy(tmp_path):
    """A copy with all additions, and Python in it."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in {line.partition("/")[0] for line in tracked()}:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "tests" / "additions", folder, dirs_exist_ok=True)
    environment = {"PYTHONPATH": str(folder), "COVERAGE_PROCESS_START": ""}
    return folder, partial(python, cwd=folder, env=environment)


@pytest.mark.slow
def test_new_files_pass_every_test_that_starts_no_process(copy):
    folder, run = copy
    run(*TESTS, "tests/unit")
    words = "-n0", "-m", "", "-vv"  # the slow ones too
    own = run(*TESTS, "tests/unit", *words, "-k", "root_bias or slowed")
    passed = [line for line in own.splitlines() if "PASSED" in line]
    assert sum("root_bias" in line for line in passed) >= 17
    assert any("slowed" in line for line in passed)

    # The same tests find a mistake: the slope of a root is infinite at distance 0.
    written = folder / "posenc_jax" / "schemes" / "root_bias.py"
    right, wrong = "distance.astype(jnp.float32)", "distance * jnp.exp(self.log_slope[0])"
    assert right in written.read_text()
    written.write_text(written.read_text().replace(right, wrong))
    selection = "-n0", "-k=gradients_reach and root_bias", "tests/unit/schemes/test_schemes.py"
    assert "1 failed" in run(*TESTS, *selection, code=1)


@pytest.mark.slow
def test_a_new_family_works_with_every_program(copy, text, tmp_path):
    _, run = copy
    workdir = tmp_path / "run"
    fields = TINY | {"data.path": f"{text}/*.txt", "model.family": "generate"}
    train = ["train.py", "--config=configs/fox.py", f"--workdir={workdir}"]
    train += [f"--config.{name}={value}" for name, value in fields.items()]
    run(*train, "--config.stop_at=6", code=75)
    run(*train)
    assert json.loads((workdir / "status.json").read_text())["step"] == TINY["steps"]
    run("eval_extrapolation.py", f"--workdir={workdir}", "--config.multiples=0.5,1,2")
    run("scripts/diagnose.py", f"{workdir}@none@64", "--documents=2")
    assert (workdir / "eval" / "diagnose" / "attention.csv").exists()
    run("scripts/report.py", workdir, f"--out={tmp_path / 'page'}")
    assert (tmp_path / "page" / "index.html").exists()
    out = run(*train[:2], "--workdir=other", "--config.model.family=generates", code=2)
    assert "one of 'generate', 'transformer'" in out


@pytest.mark.slow
def test_a_new_protocol_is_evaluated_and_reported(copy, call, whole, tmp_path):
    _, run = copy
    here, there = tmp_path / "here" / "run", tmp_path / "there" / "run"
    for workdir in (here, there):
        shutil.copytree(whole[0], workdir)
    words = ["--config.multiples=0.5,1,2", "--config.extensions=none,yarn", "--config.documents=2"]
    call("eval_extrapolation.py", here, *words, f"--config.protocols={PROTOCOLS}")
    words = [f"--workdir={there}", *words]
    more = f"--config.protocols={PROTOCOLS},last_three,words"
    out = run("eval_extrapolation.py", *words, more)
    assert "last_three, the last three targets" in out
    old, new = rows_of(here), rows_of(there)
    scored = {(row["protocol"], row.pop("scored")) for row in new}  # a column that it declares
    assert {n for n, value in scored if value} == {"last_three"} and ("last_three", "3") in scored
    added = [row for row in new if row["protocol"] in ("last_three", "words")]
    assert [row for row in new if row not in added] == old  # to the last digit
    for name, source in (("last_three", old[0]["text"]), ("words", "doubled")):
        chosen = [row for row in added if row["protocol"] == name]
        assert {row["length"] for row in chosen} == {"16", "32", "64"}
        assert {row["text"] for row in chosen} == {source}
        assert len({row["token_hash"] for row in chosen}) == 1
        # The first states no null of its own; the second has that of what it derives from.
        nulls = {bool(row["null_nll"]) for row in chosen if row["length"] == "64"}
        assert nulls == {name == "words"}
    hashes = {r["token_hash"] for r in added} & {r["token_hash"] for r in old}
    assert not hashes
    pictures = {path.stem for path in (there / "plots").glob("*.png")}
    assert {"last_three", "words", "same_token"} <= pictures
    run("scripts/report.py", there, f"--out={tmp_path / 'page'}")
    page = (tmp_path / "page" / "index.html").read_text()
    assert "last_three: the last three targets" in page
    assert (tmp_path / "page" / "words.png").exists()
    assert "last_three" in run("scripts/compare.py", there, f"{there}@yarn")
    misspelt = [*words, "--config.protocols=last_thre"]
    assert "did you mean 'last_three'?" in run("eval_extrapolation.py", *misspelt, code=2)
    assert json.loads((there / "status.json").read_text())["state"] == "done"


USE = """
import posenc_jax
from configs import rope
from posenc_jax import extensions
from posenc_jax.config import building, flags, load
from posenc_jax.evaluation import methods
from posenc_jax.runtime.errors import ConfigError

encoding = posenc_jax.build("rope", posenc_jax.Dims(2, 8, 16, 16))
extended = posenc_jax.extend("slowed:2:share=0.25+logn", encoding, 1.0)
assert list(encoding.inv_freq / extended.inv_freq) == [1, 1, 1, 2] and extended.logn
names = [method.name for method in methods.methods("all,slowed:share=1", encoding, 4.0)]
assert "slowed" in names and names[-1] == "slowed:share=1"
assert methods.mistakes("slowed:2,slowed:shares=1") == [
    "unknown option of extension 'slowed': 'shares'; did you mean 'share'? have: share"
]
words = ["train.py", "--config=configs/rope.py", "--config.extension.scale=2"]
words += ["--config.extension.name=slowed", "--config.extension.share=0.25"]
_, recipe, problems = flags.parse(words)
ours = building.extended(load(recipe, more=problems), encoding)
assert (ours.inv_freq == extended.inv_freq).all()
recipe.extension.share = -1.0
try:
    load(recipe)
except ConfigError as error:
    assert error.args == ("share must be a finite number above 0; got -1.0",)
else:
    raise AssertionError
"""


def test_an_extension_with_an_option_is_one_file(copy):
    _, run = copy
    run("-c", USE)
