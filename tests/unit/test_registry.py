"""The folders whose files are the choices."""

import sys
from importlib import import_module

import pytest

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
