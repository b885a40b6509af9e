"""Import order of the subpackages: each imports earlier ones only."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from running import ROOT

PACKAGE = ROOT / "posenc_jax"
# From the ground up: a layer imports those before it, and its own modules.
LAYERS = (
    "runtime.errors checks registry runtime fields composition display "
    "encoding layers positions attention schemes extensions data config "
    "tracking runs pretrained training evaluation plots sweeping report api advice testing"
).split()
INDEPENDENT = [("training", "evaluation"), ("sweeping", "training")]


def modules() -> dict[str, Path]:
    """Return the path of every module below posenc_jax by name, without the façade."""
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        words = path.relative_to(PACKAGE).with_suffix("").parts
        words = words[:-1] if words[-1] == "__init__" else words
        if words:
            paths[".".join(words)] = path
    return paths


def imports(path: Path, known: dict[str, Path]):
    """Yield the modules of the package that a file imports anywhere; "" is the façade."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == "posenc_jax":
                inner = name.removeprefix("posenc_jax").lstrip(".")
                yield inner if inner in known else inner.rpartition(".")[0]


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imports(path, known)) for name, path in known.items()}


def layer_of(module: str) -> str:
    return module if module in LAYERS else module.partition(".")[0]


def test_no_module_imports_itself_through_others(graph):
    """A package's __init__ may import its modules, which do not import it."""
    assert list(TopologicalSorter(graph).static_order())


def test_layers_import_earlier_layers_only(graph):
    assert set(LAYERS) == {layer_of(name) for name in graph}, "add a new layer to LAYERS"
    for module, imported in graph.items():
        for other in {layer_of(name) for name in imported if name} - {layer_of(module)}:
            assert LAYERS.index(other) < LAYERS.index(layer_of(module)), f"{module} imports {other}"


@pytest.mark.parametrize("pair", INDEPENDENT, ids="-".join)
def test_independent_layers_do_not_import_each_other(pair, graph):
    for module, imported in graph.items():
        for first, other in (pair, pair[::-1]):
            if layer_of(module) == first:
                assert other not in {layer_of(name) for name in imported}, module


def test_no_module_imports_the_facade(graph):
    """posenc_jax/__init__.py is for users; modules import from the defining module."""
    assert [name for name, imported in graph.items() if "" in imported] == []


def test_the_client_of_wandb_imports_base_layers_only(graph):
    imported = {layer_of(name) for name in graph["tracking.wandb"]}
    assert imported <= {"runtime.errors", "runtime", "config"}
