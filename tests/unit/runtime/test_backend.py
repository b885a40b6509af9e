"""Settings of `configure` and their precedence."""

import os
from importlib.metadata import version
from pathlib import Path

from posenc_jax.runtime import backend


def test_the_compilation_cache_is_the_users_choice_or_off(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    backend.configure()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "mine"
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    backend.configure()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # XDG: relative paths are ignored
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no home folder
    backend.configure()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_old_programs_are_deleted(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    backend.configure()
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    for name in ("new", "old"):
        (folder / name).touch()
    os.utime(folder / "old", (0, 1_000))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    backend.configure()
    assert os.listdir(folder) == ["new"]


def test_machine_reports_processor_jaxlib_and_cores(monkeypatch):
    machine = backend.machine()
    assert machine["processor"] and machine["jaxlib"] == version("jaxlib")
    monkeypatch.setenv("NPROC", "3")
    assert backend.cores() == 3
    monkeypatch.delenv("NPROC")
    assert backend.cores() == len(os.sched_getaffinity(0))
