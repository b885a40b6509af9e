"""The study uses the laboratory by its public names alone."""

import ast

from study.cells import STUDY


def private(tree):
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        yield from (name for name in names if name.startswith("_") and not name.endswith("__"))


def test_the_study_uses_public_names_alone():
    sources = {path: ast.parse(path.read_text()) for path in STUDY.rglob("*.py")}
    found = [
        f"{path.relative_to(STUDY)}: {n}" for path, tree in sources.items() for n in private(tree)
    ]
    assert found == [] and len(sources) > 40
    assert list(private(ast.parse("import a._b\nfrom c import _d\ne._f"))) == ["_b", "_d", "_f"]
