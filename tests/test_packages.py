"""Installed or in a checkout, beside packages of other people that have the same names."""

import subprocess
import sys
import zipfile

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
    """What `pip install` would lay down."""
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


def test_where_ours_is_missing_both_paths_are_named(wheel, theirs, whole, tmp_path):
    site = tmp_path / "site"
    subprocess.run(["cp", "-r", str(wheel[1]), str(site)], check=True)
    subprocess.run(["rm", "-r", str(site / "models")], check=True)
    done = read(whole[0], site, theirs)
    assert done.returncode != 0
    assert f"{site / 'models' / '__init__.py'}" in done.stderr
    assert f"is {theirs / 'models' / '__init__.py'} here" in done.stderr


def test_a_wheel_holds_what_it_imports_and_its_types(wheel):
    names = zipfile.ZipFile(wheel[0]).namelist()
    needed = ["models/__init__.py", "models/py.typed", "configs/base.py", "configs/eval.py"]
    needed += ["posenc_jax/py.typed", "posenc_jax/reporting/page.html"]
    assert set(needed) <= set(names)
    assert f"-{posenc_jax.__version__}-" in wheel[0].name
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"posenc_jax", "models", "configs"}
