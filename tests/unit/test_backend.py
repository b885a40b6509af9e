"""The guard against a CPU backend that sums wrongly."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version

import pytest

from posenc_jax import backend

FLAG = "--xla_cpu_experimental_ynn_fusion_type"


def run(code, **environment):
    """In a process of its own: XLA reads its flags once."""
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"} | environment
    return subprocess.run(
        [sys.executable, "-c", code],
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
    )


def test_this_process_sums_right():
    backend.self_test()


def test_configure_makes_a_fresh_process_sum_right():
    done = run("from posenc_jax import backend; backend.configure(); backend.self_test()")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(version("jaxlib") != "0.10.2", reason="only jaxlib 0.10.2 sums wrongly")
def test_the_self_test_finds_the_fault_it_is_for():
    done = run("from posenc_jax import backend; backend.self_test()")
    assert done.returncode != 0 and "computes wrong sums" in done.stderr


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


def test_importing_sets_nothing():
    done = run("import posenc_jax, os; posenc_jax.build; assert not os.environ['XLA_FLAGS']")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
@pytest.mark.parametrize("kept", [True, False])
def test_freed_memory_is_kept(kept):
    """The second time around, no page is new; a user's own choice of malloc stays."""
    code = """
import resource, sys
from posenc_jax import backend
backend.configure()
import numpy as np
def faults():
    np.full(8_000_000, 1.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.full(8_000_000, 1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults())
"""
    env = os.environ | {"NUMPY_MADVISE_HUGEPAGE": "0"} | ({} if kept else {"MALLOC_CHECK_": "0"})
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) < 1_000) == kept


def test_programs_are_kept_for_this_processor_and_a_second_process_finds_them(tmp_path):
    code = """
from posenc_jax import backend
backend.configure()
import jax
found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
jax.jit(lambda x: x * 2 + 1)(1.0).block_until_ready()
print(jax.config.jax_compilation_cache_dir, "hit" if any("cache_hits" in e for e in found) else "")
"""
    environment: dict[str, str | None] = {"XDG_CACHE_HOME": str(tmp_path)}
    set_by_the_suite = ("COMPILATION_CACHE_DIR", "PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    environment |= {f"JAX_{name}": None for name in set_by_the_suite}
    first, second = (run(code, **environment) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    folder, *hits = first.stdout.split()
    assert folder.startswith(f"{tmp_path}/posenc-jax/programs/jaxlib-{version('jaxlib')}")
    assert not hits and second.stdout.split() == [folder, "hit"]


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
