"""What `configure` sets, and whose settings win."""

import os
from importlib.metadata import version

from posenc_jax import backend


def test_the_folder_of_programs_is_the_users_word_or_none_where_it_cannot_be(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    backend.configure()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "mine"
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    backend.configure()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, as XDG says
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # nobody's home
    backend.configure()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_a_machine_is_known_by_its_processor_its_cores_and_its_library(monkeypatch):
    machine = backend.machine()
    assert machine["processor"] and machine["jaxlib"] == version("jaxlib")
    monkeypatch.setenv("NPROC", "3")
    assert backend.cores() == 3
    monkeypatch.delenv("NPROC")
    assert backend.cores() == len(os.sched_getaffinity(0))
