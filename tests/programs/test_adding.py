"""An encoding, an extension with an option and a protocol, one file each (and a recipe), in a copy
of the project: every test that is not about processes takes them up unedited."""

import shutil
from pathlib import Path

import pytest
from running import ROOT
from test_adding_a_protocol import DOUBLED, LAST_THREE, run
from test_adding_an_encoding import RECIPE, SCHEME
from test_adding_an_extension import EXTENSION


@pytest.mark.slow
def test_three_new_files_pass_every_test_that_starts_no_process(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("benchmarks", "configs", "docs", "models", "posenc_jax", "scripts", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(path, copy)
    new = copy / "posenc_jax"
    scheme = SCHEME.replace("DISTANCE", "distance.astype(jnp.float32)")
    (new / "schemes" / "root_bias.py").write_text(scheme)
    (copy / "configs" / "root_bias.py").write_text(RECIPE)
    (new / "extensions" / "slowed.py").write_text(EXTENSION)
    (new / "evaluation" / "protocols" / "last_three.py").write_text(LAST_THREE)
    (new / "evaluation" / "protocols" / "doubled.py").write_text(DOUBLED)
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests += ["tests/unit"]
    run(copy, *tests)
    names = run(copy, *tests, "-n0", "--collect-only")
    assert "root_bias" in names and "slowed" in names
