"""Imports in a fresh interpreter: modules they load, settings they change, flags of XLA."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version

import pytest
from running import python


def run(code, **environment):
    """In a process of its own: XLA reads its flags once."""
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"} | environment
    return subprocess.run(
        [sys.executable, "-c", code],
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
    )


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
    environment["TF_CPP_MIN_LOG_LEVEL"] = None
    first, second = (run(code, **environment) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    folder, *hits = first.stdout.split()
    assert folder.startswith(f"{tmp_path}/posenc-jax/programs/jaxlib-{version('jaxlib')}")
    assert not hits and second.stdout.split() == [folder, "hit"]
    assert not second.stderr


def loaded_by(code):
    return set(python("-c", f"{code}\nimport sys; print(*sys.modules)").split())


def test_the_library_loads_no_more_than_jax_and_flax():
    """Also when all is used but what reads checkpoints. optax comes with flax."""
    code = """import posenc_jax, models
for name in posenc_jax.__all__:
    if name not in ("load_run", "recipe", "train", "evaluate"):
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
