"""Imports in a fresh interpreter: modules they load, settings they change, flags of XLA."""

import platform
from importlib.metadata import version

import pytest
from running import python


def test_importing_sets_nothing():
    code = "import posenc_jax, os; posenc_jax.build; assert not os.environ['XLA_FLAGS']"
    python("-c", code, env={"XLA_FLAGS": ""})


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
    env = {"NUMPY_MADVISE_HUGEPAGE": "0"} | ({} if kept else {"MALLOC_CHECK_": "0"})
    assert (int(python("-c", code, env=env)) < 1_000) == kept


def test_programs_are_kept_for_this_processor_and_a_second_process_finds_them(
    tmp_path, monkeypatch
):
    code = """
from posenc_jax import backend
backend.configure()
import jax
found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
jax.jit(lambda x: x * 2 + 1)(1.0).block_until_ready()
print(jax.config.jax_compilation_cache_dir, "hit" if any("cache_hits" in e for e in found) else "")
"""
    set_by_the_suite = ("COMPILATION_CACHE_DIR", "PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    for name in (*(f"JAX_{name}" for name in set_by_the_suite), "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    environment = {"XDG_CACHE_HOME": str(tmp_path), "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    first, second = (python("-c", code, env=environment) for _ in range(2))
    folder, *hits = first.splitlines()[0].split()
    assert folder.startswith(f"{tmp_path}/posenc-jax/programs/jaxlib-{version('jaxlib')}")
    assert not hits and second.split() == [folder, "hit"]  # and no warning


@pytest.mark.parametrize("before, level", [("import jax", "3"), ("", "3"), ("own", "0")])
def test_a_program_started_by_a_process_with_jax_logs_as_one_from_a_shell(
    before, level, monkeypatch
):
    """jax sets 1, and with that warnings of SIGILL fill the log of a sweep's jobs."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if before == "own":
        before = "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '0'; import jax"
    job = "import os, train; train.backend.configure(); print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    code = f"{before}\nimport subprocess, sys; subprocess.run([sys.executable, '-c', {job!r}])"
    assert python("-c", code).strip() == level


def loaded_by(code):
    return set(python("-c", f"{code}\nimport sys; print(*sys.modules)").split())


def test_the_library_loads_no_more_than_jax_and_flax():
    """Also when all is used but what reads checkpoints. optax comes with flax."""
    code = """import posenc_jax, models
for name in posenc_jax.__all__:
    if name not in ("load_run", "recipe", "train", "evaluate", "curves", "advise"):
        getattr(posenc_jax, name)"""
    loaded = loaded_by(code)
    assert {"jax", "flax"} <= loaded
    assert not loaded & {"wandb", "datasets", "orbax.checkpoint", "ml_collections", "tensorstore"}


WITHOUT_JAX = """
import sys
from importlib.metadata import version
import posenc_jax, posenc_jax.checks, posenc_jax.runtime.backend
import models; models.Config()
import eval_extrapolation, train
for main in (train.main, eval_extrapolation.main):
    try:
        main(["a program", "--help"])
    except SystemExit as end:
        assert not end.code
"""


def test_recipes_and_help_need_no_jax():
    assert not loaded_by(WITHOUT_JAX) & {"jax", "flax"}
