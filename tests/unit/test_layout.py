"""Code rules checked on the syntax trees of the sources."""

import ast
import re

import pytest
from running import ROOT


@pytest.fixture(scope="module")
def sources():
    """Syntax tree of every source file, by its path below the root."""
    patterns = "*.py posenc_jax/**/*.py models/*.py configs/**/*.py scripts/*.py".split()
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


NAMES_THE_STUDY = re.compile(r"""\bstudy[/.]\w|["']study["']|\b(?:import|from) +study\b""")


def test_the_laboratory_does_not_name_the_study():
    folders = "posenc_jax models configs scripts tests benchmarks".split()
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += ROOT.glob("*.py")
    named = [
        str(path.relative_to(ROOT))
        for path in files
        if path.suffix in {".py", ".html", ".toml"} and NAMES_THE_STUDY.search(path.read_text())
    ]
    assert named == [] and len(files) > 300
    for line in ("see STUDY/order", "import STUDY", "from STUDY.a import b", "ROOT / 'STUDY'"):
        assert NAMES_THE_STUDY.search(line.replace("STUDY", "STUDY".lower()))


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# Modules of posenc_jax that models may import; test_imports has the others.
OF_MODELS = "checks registry fields runtime encoding layers positions attention".split()


def test_models_import_the_interface_alone(sources):
    for path, tree in sources.items():
        for name in imports(tree) if path.parts[0] == "models" else ():
            if name.startswith("posenc_jax."):
                assert name.split(".")[1] in OF_MODELS, f"{path.name} imports {name}"


def test_the_decoder_names_no_encoding(sources):
    from posenc_jax import schemes

    words = {
        str(getattr(node, field, None)).lower()
        for path, tree in sources.items()
        if path.parts[0] == "models"
        for node in ast.walk(tree)
        for field in ("id", "attr", "value")
    }
    assert not words & set(schemes.names())
