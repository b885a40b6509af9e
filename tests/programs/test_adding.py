"""Adding an encoding, an extension, a protocol, a task or a family of models is one file: in a
package of one's own, or in a copy of the project over which `tests/additions` lies, whose tests and
programs take it up unedited."""

import json
import re
import shutil
from functools import partial

import pytest
from curves import rows_of
from running import ROOT, TINY, python, tracked

ADDITIONS = ROOT / "tests" / "additions"
README = (ROOT / "README.md").read_text()

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
    shutil.copytree(ADDITIONS, folder, dirs_exist_ok=True)
    shutil.copy(
        ADDITIONS / "mine" / "slowed.py", folder / "posenc_jax" / "extensions" / "positive.py"
    )
    environment = {"PYTHONPATH": str(folder), "COVERAGE_PROCESS_START": ""}
    return folder, partial(python, cwd=folder, env=environment)


@pytest.fixture
def package(tmp_path):
    """A folder with a package, whose encoding is the README's, and Python in it."""
    shutil.copytree(ADDITIONS / "mine", tmp_path / "mine")
    (source,) = re.findall(r"```python\n((?:(?!```).)*?\ndef build\(.*?)```", README, re.DOTALL)
    (tmp_path / "mine" / "root_bias.py").write_text(source)
    return tmp_path, partial(python, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})


LETTERS = {"data.source": "mine.letters", "data.repeats": 2, "data.documents": 24}
MINE = [
    "--config.extensions=none,mine.slowed:2,logn",
    "--config.protocols=same_token,mine.last_three",
]


def flags(fields, group="--config"):
    return [f"{group}.{name}={value}" for name, value in fields.items()]


def test_a_package_of_ones_own_is_trained_resumed_evaluated_and_reported(package):
    folder, run = package
    program, *words = re.search(r"`python (train.py [^`]*)`", README)[1].split()
    fields = TINY | LETTERS
    fields.pop("data.valid_fraction")
    run(ROOT / program, *words, *flags(fields), "--config.stop_at=6", code=75)
    run(ROOT / program, words[-1])
    workdir = folder / "runs" / "root_bias"
    config = json.loads((workdir / "config.json").read_text())
    assert config["encoding"]["name"] == "mine.root_bias" and config["data"]["repeats"] == 2
    assert json.loads((workdir / "status.json").read_text())["step"] == TINY["steps"]
    evaluation = ["--config.multiples=0.5,1,2", *MINE]
    out = run(ROOT / "eval_extrapolation.py", words[-1], *evaluation)
    assert "mine.slowed:2" in out  # left out, and said so
    rows = rows_of(workdir)
    assert {row["encoding"] for row in rows} == {"mine.root_bias"}
    assert {row["protocol"] for row in rows} >= {"same_token", "mine.last_three"}
    run(ROOT / "scripts" / "report.py", "runs", "--out=page")
    page = (folder / "page" / "index.html").read_text()
    assert "mine.root_bias" in page and "mine.last_three: the last three targets" in page
    assert (folder / "page" / "mine.last_three.png").exists()
    elsewhere = run(ROOT / "train.py", f"--workdir={workdir}", cwd=folder.parent, code=74)
    assert "there is no module 'mine'; start in the folder that holds it" in elsewhere


@pytest.mark.slow
def test_a_package_of_ones_own_is_swept(package):
    """Inside an encoding of ours, with an extension of its own."""
    folder, run = package
    fields = TINY | LETTERS | {"extension.name": "mine.slowed:2", "encoding.inner": "rope"}
    fields.pop("data.valid_fraction")
    grid = [
        {"encoding.name": "mine.root_bias", "extension.name": "none"},
        {
            "encoding.name": "randomized",
            "encoding.inner": "mine.root_bias",
            "extension.name": "none",
        },
        {
            "encoding.name": "randomized",
            "encoding.inner": "rope",
            "extension.name": "mine.slowed:2",
        },
    ]
    for job in grid:
        job |= {"recipe": "configs/nope.py"}
    fields = {n: v for n, v in fields.items() if not n.startswith(("encoding", "extension"))}
    evaluation = {"multiples": "1,2", "extensions": "none,mine.slowed:4,logn", "documents": 2}
    sweep = {"grid": grid, "fields": fields, "evaluation": evaluation}
    (folder / "sweep.py").write_text(f"def get_config():\n    return {sweep!r}\n")
    run(ROOT / "scripts" / "sweep.py", "--config=sweep.py", "--workdir=runs")
    found = [row for path in folder.glob("runs/*") if path.is_dir() for row in rows_of(path)]
    assert {row["encoding"] for row in found} == {"mine.root_bias", "randomized"}
    assert {row["extension"] for row in found} >= {"none", "logn", "mine.slowed"}


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
def test_a_new_protocol_is_evaluated_and_reported(package, call, whole, tmp_path):
    _, start = package

    def run(program, *words, **options):
        return start(ROOT / program, *words, **options)

    here, there = tmp_path / "here" / "run", tmp_path / "there" / "run"
    for workdir in (here, there):
        shutil.copytree(whole[0], workdir)
    words = ["--config.multiples=0.5,1,2", "--config.extensions=none,yarn", "--config.documents=2"]
    call("eval_extrapolation.py", here, *words, f"--config.protocols={PROTOCOLS}")
    words = [f"--workdir={there}", *words]
    more = f"--config.protocols={PROTOCOLS},mine.last_three,mine.words"
    out = run("eval_extrapolation.py", *words, more)
    assert "mine.last_three, the last three targets" in out
    old, new = rows_of(here), rows_of(there)
    scored = {(row["protocol"], row.pop("scored")) for row in new}  # a column that it declares
    assert {n for n, value in scored if value} == {"mine.last_three"} and (
        "mine.last_three",
        "3",
    ) in scored
    added = [row for row in new if row["protocol"] in ("mine.last_three", "mine.words")]
    assert [row for row in new if row not in added] == old  # to the last digit
    for name, source in (("mine.last_three", old[0]["text"]), ("mine.words", "doubled")):
        chosen = [row for row in added if row["protocol"] == name]
        assert {row["length"] for row in chosen} == {"16", "32", "64"}
        assert {row["text"] for row in chosen} == {source}
        assert len({row["token_hash"] for row in chosen}) == 1
        # The first states no null of its own; the second has that of what it derives from.
        nulls = {bool(row["null_nll"]) for row in chosen if row["length"] == "64"}
        assert nulls == {name == "mine.words"}
    hashes = {r["token_hash"] for r in added} & {r["token_hash"] for r in old}
    assert not hashes
    pictures = {path.stem for path in (there / "plots").glob("*.png")}
    assert {"mine.last_three", "mine.words", "same_token"} <= pictures
    run("scripts/report.py", there, f"--out={tmp_path / 'page'}")
    page = (tmp_path / "page" / "index.html").read_text()
    assert "mine.last_three: the last three targets" in page
    assert (tmp_path / "page" / "mine.words.png").exists()
    assert "mine.last_three" in run("scripts/compare.py", there, f"{there}@yarn")
    misspelt = [*words, "--config.protocols=mine.last_thre"]
    assert "no module 'mine.last_thre'" in run("eval_extrapolation.py", *misspelt, code=2)
    assert json.loads((there / "status.json").read_text())["state"] == "done"


USE = """
import posenc_jax
from configs import rope
from posenc_jax import extensions
from posenc_jax.config import building, flags, load
from posenc_jax.evaluation import methods
from posenc_jax.runtime.errors import ConfigError

encoding = posenc_jax.build("rope", posenc_jax.Dims(2, 8, 16, 16))
extended = posenc_jax.extend("mine.slowed:2:share=0.25+logn", encoding, 1.0)
assert list(encoding.inv_freq / extended.inv_freq) == [1, 1, 1, 2] and extended.logn
names = [method.name for method in methods.methods("all,mine.slowed:share=1", encoding, 4.0)]
assert names[-1] == "mine.slowed:share=1"
assert methods.mistakes("mine.slowed:2,mine.slowed:shares=1") == [
    "unknown option of extension 'mine.slowed': 'shares'; did you mean 'share'? have: share"
]
words = ["train.py", "--config=configs/rope.py", "--config.extension.scale=2"]
words += ["--config.extension.name=mine.slowed", "--config.extension.share=0.25"]
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


def test_an_extension_with_an_option_is_one_file(package):
    _, run = package
    run("-c", USE)
