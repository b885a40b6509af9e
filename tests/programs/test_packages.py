"""What is installed: the wheel is the library alone, and the demo needs no tools."""

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser

import pytest
from running import ROOT

import posenc_jax

LIBRARY = """
import sys
sys.path.insert(0, {site!r})
for name in ({absent}):
    sys.modules[name] = None  # as if it were not installed
import jax.numpy as jnp, posenc_jax
assert posenc_jax.__file__.startswith({site!r}), posenc_jax.__file__
rope = posenc_jax.build("rope", posenc_jax.Dims(2, 8, 16, 16))
yarn = posenc_jax.extend("yarn:4:beta_slow=0.5+logn", rope, 1.0)
q = jnp.ones((1, 64, 2, 8))
assert posenc_jax.attention.attend(q, q, q, yarn).shape == q.shape
for name in ("load_run", "recipe", "train", "evaluate"):
    try:
        getattr(posenc_jax, name)
    except ImportError as error:
        print(error)
"""
CHECKOUT = ("models", "configs")
LAB = ("ml_collections", "datasets", "wandb", "tokenizers", "matplotlib", "tqdm")


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


@pytest.mark.parametrize("absent", [CHECKOUT, LAB])
def test_the_wheel_alone_builds_extends_and_attends(wheel, absent, tmp_path):
    code = LIBRARY.format(site=str(wheel[1]), absent=", ".join(map(repr, absent)))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reason = "training and evaluation run from a checkout of the repository"
    if absent == LAB:
        reason = "training and evaluation need ml_collections: .venv/bin/pip install -e '.[lab]'"
    assert done.stdout.splitlines() == [reason] * 4


def test_a_wheel_holds_the_library_and_its_types(wheel):
    names = zipfile.ZipFile(wheel[0]).namelist()
    assert {"posenc_jax/py.typed", "posenc_jax/report/page.html"} <= set(names)
    assert f"-{posenc_jax.__version__}-" in wheel[0].name
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"posenc_jax"}


def test_the_metadata_of_a_wheel_are_those_of_an_index_page(wheel):
    with zipfile.ZipFile(wheel[0]) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Author"] and metadata["Keywords"] and metadata.get_all("Classifier")
    assert metadata["Description-Content-Type"] == "text/markdown"
    readme = metadata.get_payload()
    assert readme.startswith("# posenc-jax\n")


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
