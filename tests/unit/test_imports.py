"""The rooms of the package stand on one another in one order, and none looks up."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from running import ROOT

PACKAGE = ROOT / "posenc_jax"
# From the ground up: a room imports those before it, and its own modules.
ROOMS = (
    "errors packages checks registry backend terminal files fields composition neighbours typeset "
    "encoding positions schemes extensions attention data config tracking runs training evaluation "
    "plots programs sweeping report lab"
).split()
APART = [("training", "evaluation"), ("sweeping", "training")]


def modules() -> dict[str, Path]:
    """Every module of the package but the façade, by its name below posenc_jax."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        words = path.relative_to(PACKAGE).with_suffix("").parts
        words = words[:-1] if words[-1] == "__init__" else words
        if words:
            found[".".join(words)] = path
    return found


def imports(path: Path, known: dict[str, Path]):
    """Modules of the package that one imports, anywhere in its text; "" is the façade."""
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


def room(module: str) -> str:
    return module.partition(".")[0]


def test_no_module_imports_itself_through_others(graph):
    """A package's own file may name its modules, which do not import it."""
    assert list(TopologicalSorter(graph).static_order())


def test_no_room_looks_up(graph):
    assert set(ROOMS) == {room(name) for name in graph}, "say on which rooms a new one stands"
    for module, imported in graph.items():
        for other in {room(name) for name in imported if name} - {room(module)}:
            assert ROOMS.index(other) < ROOMS.index(room(module)), f"{module} imports {other}"


@pytest.mark.parametrize("pair", APART, ids="-".join)
def test_rooms_side_by_side_know_nothing_of_each_other(pair, graph):
    for module, imported in graph.items():
        for one, other in (pair, pair[::-1]):
            if room(module) == one:
                assert other not in {room(name) for name in imported}, module


def test_only_the_facade_points_up(graph):
    """What stands in posenc_jax/__init__.py is for users; modules import from where things are."""
    assert [name for name, imported in graph.items() if "" in imported] == []


def test_what_tracks_a_run_knows_nobody(graph):
    for module, imported in graph.items():
        if room(module) == "tracking":
            known = {"tracking", "errors", "files", "terminal", "config"}
            assert {room(name) for name in imported} <= known
