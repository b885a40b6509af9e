"""The folders whose files are the choices."""

import sys
from importlib import import_module
from pathlib import Path

import jax
import pytest
from running import ROOT
from sizes import DIMS

import posenc_jax
from posenc_jax import extensions, registry
from posenc_jax.data import sources

PACKAGES = [
    "models",
    "posenc_jax.data.sources",
    "posenc_jax.data.tasks",
    "posenc_jax.evaluation.protocols",
    "posenc_jax.extensions",
    "posenc_jax.schemes",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_file_named_like_a_helper_of_its_package_does_not_replace_it(name, tmp_path, monkeypatch):
    package = import_module(name)
    monkeypatch.setattr(package, "__path__", [str(tmp_path), *package.__path__])
    places = [f"{name}.{helper}" for helper in {*vars(package), *getattr(package, "__all__", ())}]
    files = [place for place in places if "._" not in place and place not in sys.modules]
    assert len(files) > 12
    for place in files:
        helper = place.rpartition(".")[2]
        before = getattr(package, helper)
        (tmp_path / f"{helper}.py").write_text("choice = 3\n")
        assert import_module(place).choice == 3
        assert getattr(package, helper) is before
        del sys.modules[place]


ADDITIONS = ROOT / "tests" / "additions"
BUILD = """
from posenc_jax.schemes import rope

def build(dims, *, base=5.0):
    return rope.build(dims, base=base)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one's own in the current folder."""
    (tmp_path / "own_package").mkdir()
    own = {path.stem: path.read_text() for path in (ADDITIONS / "mine").glob("*.py")}
    text = own["slowed"]
    several = text + text[text.index("@extension") :].replace("def slowed", "def faster")
    files = own | {"several": several, "based": BUILD, "broken": "import own_missing"}
    for name, text in files.items():
        Path(tmp_path / "own_package" / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "own_package"
    for name in [name for name in sys.modules if name.startswith("own_package")]:
        del sys.modules[name]


def test_modules_of_ones_own_are_choices(package):
    based = posenc_jax.build("own_package.based", DIMS, base=7.0)
    around = posenc_jax.build("randomized", DIMS, inner="own_package.based:base=7", sink=True)
    assert (based.name, around.name) == ("own_package.based", "randomized")
    assert around.named_parts()["inner"].inner.name == "own_package.based"
    assert jax.numpy.array_equal(based.inv_freq, posenc_jax.build("rope", DIMS, base=7.0).inv_freq)
    assert {"yarn", "logn"} <= set(extensions.fitting(based))
    for name in ("own_package.slowed", "own_package.several.slowed", "own_package.several.faster"):
        assert extensions.named(f"{name}:4+logn")[0][0].name == name
        assert extensions.canonical(f"{name}:4:share=0.5") == name
    source, problems = sources.read({"source": "own_package.letters", "repeats": 2}, 8)
    assert problems == [] and source.as_fields()["task"] == "own_package.letters"
    mixture = {"mixture": "stdlib:0.5,own_package.letters:0.5:repeats=4"}
    assert sources.read(mixture, 8)[1] == []


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("encoding", "own_package.base", "no module 'own_package.base'; start in the folder"),
        ("encoding", "own_packages.based", "no module 'own_packages'; .* in PYTHONPATH"),
        ("encoding", "own_package.slowed", "module own_package.slowed defines no 'build'"),
        ("encoding", "own_package/based.py", "must be a module with its package: my_pkg.gaussian"),
        ("encoding", ".based", "must be a module with its package"),
        ("protocol", "own_package.based", "defines no 'protocol'"),
        ("task", "own_package.based", "defines no 'Task'"),
    ],
)
def test_a_module_that_is_no_choice_is_refused(kind, name, message, package):
    with pytest.raises(ValueError, match=message):
        registry.find(kind, name)
    assert not registry.exists(kind, name)


def test_an_extension_that_a_module_lacks_is_refused(package):
    with pytest.raises(ValueError, match=r"own_package.several has: own_package.several.slowed, "):
        extensions.named("own_package.several")
    with pytest.raises(ValueError, match="module own_package has: none"):
        extensions.named("own_package.slow")
    with pytest.raises(ModuleNotFoundError, match="own_missing"):  # of the module, with its place
        registry.find("encoding", "own_package.broken")
