"""The guard against a CPU backend that sums wrongly."""

import os

import pytest

from posenc_jax import backend

FLAG = "--xla_cpu_experimental_ynn_fusion_type"


def test_this_process_sums_right():
    backend.self_test()


@pytest.mark.parametrize(
    ("before", "jaxlib", "after"),
    [
        ("", "0.10.2", f"{FLAG}=-reduce"),
        ("--xla_a=1", "0.10.2", f"--xla_a=1 {FLAG}=-reduce"),
        (f"{FLAG}=all", "0.10.2", f"{FLAG}=all"),  # the user's word stands
        ("--xla_a=1", "0.10.1", "--xla_a=1"),
        ("", "0.12.0.1", None),
    ],
)
def test_the_flag_is_added_where_it_is_known_and_nothing_else_changes(
    before, jaxlib, after, monkeypatch
):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if before:
        monkeypatch.setenv("XLA_FLAGS", before)
    backend.configure(jaxlib)
    assert os.environ.get("XLA_FLAGS") == after
    backend.configure(jaxlib)
    assert os.environ.get("XLA_FLAGS") == after  # twice is once


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
