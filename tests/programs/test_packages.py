"""Installed or in a checkout, beside packages of other people that have the same names."""

import subprocess
import sys
import zipfile
from email.parser import Parser

import pytest
from running import ROOT

import posenc_jax

READ = """
import sys
sys.path.insert(0, {site!r})
import posenc_jax
assert posenc_jax.__file__.startswith({site!r}), posenc_jax.__file__
model, encoding, config, tokenizer = posenc_jax.load_run({run!r})
import models
print(type(model).__module__, models.__file__, encoding.name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The files that `pip install` installs."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return built, folder / "site"


@pytest.fixture
def theirs(tmp_path):
    """A project with packages `models` and `configs` of its own, the second without __init__."""
    for name in ("models/__init__.py", "configs/base.py"):
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True)
        path.write_text("WHOSE = 'theirs'\n")
    return tmp_path / "project"


def read(run, site, cwd):
    words = READ.format(site=str(site), run=str(run.resolve()))
    command = [sys.executable, "-c", words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("place", ["checkout", "wheel"])
def test_a_run_is_loaded_beside_other_peoples_packages(
    place, foreign, wheel, theirs, whole, tmp_path
):
    site = ROOT if place == "checkout" else wheel[1]
    lines = READ.format(site=str(site), run=str(whole[0].resolve())).splitlines()
    if foreign:  # in front of everything, as the folder of a notebook is
        lines.insert(3, f"sys.path.insert(0, {str(theirs)!r})")
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    module, path, name = done.stdout.split()
    assert name == "rope"
    assert path == str((theirs if foreign else site) / "models" / "__init__.py")
    assert module == ("posenc_jax_models.transformer" if foreign else "models.transformer")


def test_a_missing_package_names_both_paths(wheel, theirs, whole, tmp_path):
    site = tmp_path / "site"
    subprocess.run(["cp", "-r", str(wheel[1]), str(site)], check=True)
    subprocess.run(["rm", "-r", str(site / "models")], check=True)
    done = read(whole[0], site, theirs)
    assert done.returncode != 0
    assert f"{site / 'models' / '__init__.py'}" in done.stderr
    assert f"is {theirs / 'models' / '__init__.py'} here" in done.stderr


LIBRARY = """
import sys
sys.path.insert(0, {site!r})
for name in ("ml_collections", "datasets", "wandb", "tokenizers", "matplotlib", "tqdm"):
    sys.modules[name] = None  # as if it were not installed
"""
USE = """
import jax, jax.numpy as jnp, models, posenc_jax
assert posenc_jax.__file__.startswith({site!r}), posenc_jax.__file__
rope = posenc_jax.build("rope", posenc_jax.Dims(2, 8, 16, 16))
yarn = posenc_jax.extend("yarn:4:beta_slow=0.5+logn", rope, 1.0)
q = jnp.ones((1, 64, 2, 8))
assert posenc_jax.attention.attend(q, q, q, yarn).shape == q.shape
model = models.Transformer(models.Config(layers=1, width=16, heads=2), jax.random.key(0))
assert model(jnp.zeros((1, 8), int), yarn).shape == (1, 8, 256)
for name in ("load_run", "recipe", "train", "evaluate"):
    try:
        getattr(posenc_jax, name)
    except ImportError as error:
        print(error)
import posenc_jax.config.parse
"""
LABORATORY = """
import sys
sys.path.insert(0, {site!r})
import posenc_jax
assert posenc_jax.__file__.startswith({site!r}), posenc_jax.__file__
small = {{"model.width": 16, "model.layers": 1, "train_length": 16, "batch_size": 4, "steps": 2}}
sys.path.insert(0, {theirs!r})
small |= {{"warmup_steps": 1, "data.source": "text", "data.path": {text!r}}}
small |= {{"wandb.mode": "disabled", "data.valid_fraction": 0.4, "data.cache": "cache"}}
assert posenc_jax.train(posenc_jax.recipe("rope", small), "run") == 0
assert posenc_jax.recipe("ordered").data.variant == "ordered"
asked = {{"multiples": "1,2", "extensions": "none,yarn+logn", "documents": 2, "windows": 1}}
rows = posenc_jax.evaluate("run", asked)
print(sorted({{row["extension"] for row in rows}}))
try:
    posenc_jax.train(posenc_jax.recipe("rope", small | {{"stepz": 1}}), "run")
except Exception as error:
    print(type(error).__name__, error)
import configs.base
print(configs.base.WHOSE)
"""


def test_the_wheel_alone_builds_extends_and_attends(wheel, tmp_path):
    code = (LIBRARY + USE).format(site=str(wheel[1]))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    told = "training and evaluation need ml_collections: .venv/bin/pip install -e '.[lab]'"
    assert done.stdout.splitlines() == [told] * 4
    assert done.stderr.splitlines()[-1] == f"error: {told}"


@pytest.mark.slow
def test_the_wheel_trains_and_evaluates_outside_a_checkout(wheel, theirs, text, tmp_path):
    """Beside a package `configs` of other people, too."""
    code = LABORATORY.format(site=str(wheel[1]), text=f"{text}/*.txt", theirs=str(theirs))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "['fresh', 'none', 'yarn+logn']" in lines
    assert "ConfigError unknown field 'stepz'; did you mean 'steps'?" in done.stdout
    assert lines[-1] == "theirs"
    assert (tmp_path / "run" / "eval" / "curves.csv").exists()


def test_a_wheel_holds_what_it_imports_and_its_types(wheel):
    names = zipfile.ZipFile(wheel[0]).namelist()
    needed = ["models/__init__.py", "models/py.typed", "configs/base.py", "configs/eval.py"]
    needed += ["posenc_jax/py.typed", "posenc_jax/report/page.html"]
    assert set(needed) <= set(names)
    assert f"-{posenc_jax.__version__}-" in wheel[0].name
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"posenc_jax", "models", "configs"}


def test_the_metadata_of_a_wheel_are_those_of_an_index_page(wheel):
    with zipfile.ZipFile(wheel[0]) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Author"] and metadata["Keywords"] and metadata.get_all("Classifier")
    assert metadata["Description-Content-Type"] == "text/markdown"
    readme = metadata.get_payload()
    assert readme.startswith("# posenc-jax\n")
