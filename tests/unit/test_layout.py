"""The house rules that a machine can hold."""

import ast
import subprocess
import sys

import pytest
from running import ROOT

SOURCES = sorted(
    path
    for folder in ("posenc_jax", "models", "configs", "scripts")
    for path in (ROOT / folder).rglob("*.py")
) + sorted(ROOT.glob("*.py"))


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def loaded_by(code):
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(out.stdout.split())


def test_the_library_loads_no_more_than_jax_and_flax():
    """Also when all is used but what reads checkpoints. optax comes with flax."""
    code = """import posenc_jax, models
for name in posenc_jax.__all__:
    if name not in ("load_run", "recipe", "train", "evaluate"):
        getattr(posenc_jax, name)"""
    loaded = loaded_by(code)
    assert {"jax", "flax"} <= loaded
    assert not loaded & {"wandb", "datasets", "orbax.checkpoint", "ml_collections", "tensorstore"}


@pytest.mark.parametrize(
    "code",
    [
        "import posenc_jax, posenc_jax.checks, posenc_jax.backend",
        "import models; models.Config()",
        "from configs import rope; from posenc_jax import validation\n"
        "config = rope.get_config(); config.steps, config.encoding.name = 0, 'ropee'\n"
        "assert len(validation.validate(config)) == 2",
        "import sys, train\ntry: train.main(['train.py', '--help'])\nexcept SystemExit: pass",
        "import sys, train\ntry: train.main(['train.py', '--config=configs/rope.py', "
        "'--workdir=x', '--config.stepz=3'])\nexcept SystemExit as end: assert end.code == 2",
        "import sys, train\ntry: train.main(['train.py', '--config=configs/rope.py', "
        "'--workdir=x', '--config.steps=0'])\nexcept SystemExit as end: assert end.code == 2",
        "import eval_extrapolation as e\ntry: e.main(['e', '--config.documents=1'])\n"
        "except SystemExit as end: assert end.code == 2",
    ],
)
def test_structure_numbers_and_help_need_no_jax(code):
    loaded = loaded_by(code)
    assert not loaded & {"jax", "flax", "numpy"}


# Who may be imported by whom: data flows one way.
ALLOWED = {
    "posenc_jax/checks.py": set(),
    "posenc_jax/backend.py": set(),
    "posenc_jax/registry.py": set(),
    "posenc_jax/fields.py": {"checks"},
    "posenc_jax/composition.py": {"checks"},
    "posenc_jax/encoding.py": {"checks"},
    "posenc_jax/positions.py": {"encoding"},
    "posenc_jax/schemes": {"checks", "registry", "encoding", "schemes"},
    "posenc_jax/extensions": {
        "checks",
        "registry",
        "composition",
        "encoding",
        "schemes",
        "extensions",
    },
    "posenc_jax/attention": {"checks", "encoding", "positions", "attention"},
    "models": {"checks", "fields", "encoding", "positions", "attention"},
}


@pytest.mark.parametrize("place", ALLOWED)
def test_imports_go_one_way(place):
    path = ROOT / place
    files = path.rglob("*.py") if path.is_dir() else [path]
    for file in files:
        for name in imports(file):
            if name.startswith("posenc_jax."):
                assert name.split(".")[1] in ALLOWED[place], f"{file.name} imports {name}"
            assert not name.startswith("models") or place == "models"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_reading_never_runs_code(path):
    """No pickle by any name, no unsafe YAML, no data set's own scripts, no text run as code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        options = {k.arg: ast.unparse(k.value) for k in node.keywords}
        assert called not in {"eval", "exec", "compile", "__import__", "os.system"}, called
        assert not called.startswith("yaml.") and called != "np.fromfile"
        assert options.get("allow_pickle", "False") == "False"
        assert "trust_remote_code" not in options and options.get("shell", "False") == "False"
        if called in {"np.load", "numpy.load"}:
            assert options.get("allow_pickle") == "False"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_source_file_reaches_for_what_it_should_not(path):
    for name in imports(path):
        assert not name.startswith("jax._src"), name
        assert name.split(".")[0] not in {"pickle", "dill", "shelve", "marshal"}, name
    assert path.name not in {"utils.py", "helpers.py", "common.py", "misc.py"}


def test_the_decoder_names_no_encoding():
    from posenc_jax import schemes

    words = set()
    for path in (ROOT / "models").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            words |= {getattr(node, field, None) for field in ("id", "attr", "value")} - {None}
    assert not {str(word).lower() for word in words} & set(schemes.names())
