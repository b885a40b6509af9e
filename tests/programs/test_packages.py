"""What is installed: the wheel is the library alone, and the demo needs no tools."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from email.parser import Parser

import numpy as np
import pytest
from running import ROOT, tracked

import posenc_jax

# The Python of the README, each block in a module's place; then what the wheel does not hold.
LIBRARY = """
import json, sys
for name in json.loads(sys.argv[2]):
    sys.modules[name] = None  # as if it were not installed
import jax, jax.numpy as jnp, posenc_jax
from flax import nnx
from posenc_jax.encoding import DistanceBias, trained
assert posenc_jax.__file__.startswith(sys.argv[1]), posenc_jax.__file__
class Linen:
    def param(self, name, init):
        return init(None)
self, dims = Linen(), posenc_jax.Dims(heads=4, head_dim=32, width=128, train_length=128)
x, key, i = jnp.ones((1, 512, 128)), None, 0
q = k = v = x.reshape(1, 512, 4, 32)
for block in json.loads(sys.argv[3]):
    space = dict(globals())
    exec(block, space)
    if "out" not in space:  # a scheme
        encoding = space["build"](dims, jax.random.key(0))
        space["out"] = posenc_jax.attention.attend(q, k, v, encoding)
    assert space["out"].shape == q.shape
for name in ("load_run", "recipe", "train", "evaluate"):
    try:
        getattr(posenc_jax, name)
    except ImportError as error:
        print(error)
"""
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
OF_LAB = re.compile(r"posenc_jax\.(recipe|train|evaluate|curves|load_run)\(")
README = [block for block in BLOCKS if not OF_LAB.search(block)]
CHECKOUT = ("models", "configs")
LAB = ("ml_collections", "datasets", "wandb", "tokenizers", "matplotlib", "tqdm")
OF_CHECKOUT = "training and evaluation run from a checkout of the repository"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist and the wheel, as a release builds them."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.suffix: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def wheel(built, tmp_path_factory):
    """The files that `pip install` installs."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built[".whl"]) as archive:
        archive.extractall(site)
    return built[".whl"], site


def run_readme(python, site, absent, cwd, **environment):
    words = [str(site), json.dumps(absent), json.dumps(README)]
    environment = {"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run(
        [python, "-c", LIBRARY, *words], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("absent", [CHECKOUT, LAB])
def test_the_wheel_alone_runs_the_python_of_the_readme(wheel, absent, tmp_path):
    assert len(README) >= 2
    said = run_readme(sys.executable, wheel[1], absent, tmp_path, PYTHONPATH=str(wheel[1]))
    lab = "training and evaluation need ml_collections: .venv/bin/pip install -e '.[lab]'"
    assert said == [lab if absent == LAB else OF_CHECKOUT] * 4


@pytest.mark.reference  # it installs jax and flax
def test_the_wheel_installs_in_an_empty_environment(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, wheel[0]], check=True)
    assert run_readme(python, tmp_path / "venv", (), tmp_path) == [OF_CHECKOUT] * 4


def test_an_sdist_holds_what_the_tests_of_the_laboratory_need(built):
    with tarfile.open(built[".gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(tracked()) <= names


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


RIGHT_AND_WRONG = """
def right(heads):
    from conformance.reference import alibi_slopes
    return alibi_slopes(heads)

def wrong(heads):
    return [2 ** (-8 * i / heads) for i in range(1, heads + 1)]
"""


def test_the_wheel_of_conformance_checks_a_function_with_numpy_alone(tmp_path):
    """In an environment that has nothing else, within two seconds a function."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "conformance", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("posenc_conformance-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python, (site,) = tmp_path / "venv/bin/python", tmp_path.glob("venv/lib/python*/site-packages")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*install, "--quiet", wheel], check=True)
    numpy = pathlib.Path(np.__file__).parent
    for folder in (numpy, numpy.with_name("numpy.libs")):
        (site / folder.name).symlink_to(folder)
    (tmp_path / "mine.py").write_text(RIGHT_AND_WRONG)
    (tmp_path / "config.json").write_text('{"head_dim": 64, "max_position_embeddings": 4096}')
    for words, code, said in (
        ("alibi_slopes mine:right", 0, "9 of 9 cases pass"),
        ("alibi_slopes mine:wrong", 1, "Probably: slopes: they are 2^(-8i/H) where H is no power"),
        ("config.json", 1, "`rope_theta` is not stated"),
    ):
        start = time.monotonic()
        command = [python, "-m", "conformance", *words.split()]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert time.monotonic() - start < 2
        assert done.returncode == code and said in done.stdout, done.stdout + done.stderr
