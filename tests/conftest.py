"""Settings and fixtures of every test: exact sums, no implicit rank promotion, small models."""

import functools
import os
import tempfile
from pathlib import Path

from posenc_jax.runtime import backend

# Tests start the programs of this checkout, even if another one is installed.
ROOT = str(Path(__file__).parent.parent)
os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])

# Compilation takes most of the suite's time, so programs that run for milliseconds are compiled
# without optimisation, by the emitters that compile fastest, in one piece.
# `XLA_FLAGS= make test` tests the programs that users run.
FAST = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)
os.environ.setdefault("XLA_FLAGS", FAST)

# Compiled programs are cached as for users, so a second run of the suite takes half the time.
backend.configure()
TOKENS = tempfile.TemporaryDirectory()  # not those that a user keeps
os.environ["XDG_CACHE_HOME"] = TOKENS.name

import jax  # noqa: E402
import pytest  # noqa: E402
from evaluated import sweep  # noqa: E402, F401
from measuring import measure, settings, subject  # noqa: E402, F401
from running import small_disk, text  # noqa: E402, F401
from sizes import DIMS, VARIANTS  # noqa: E402

import posenc_jax  # noqa: E402
from posenc_jax import schemes, testing  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")


@functools.cache
def built(name):
    scheme, options, extension = VARIANTS.get(name, (name, {}, "none"))
    encoding = posenc_jax.build(scheme, DIMS, key=jax.random.key(3), **options)
    return posenc_jax.extend(extension, encoding, 4.0)


@pytest.fixture(params=[*schemes.names(), *VARIANTS])
def encoding(request):
    return built(request.param)


MAPS = Path("/proc/self/maps")  # every compiled program has some; Linux allows 65,530


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """XLA crashes in a process of too many memory maps, which hours of slow tests reach."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > 30_000:
        jax.clear_caches()


@pytest.fixture(scope="session")
def make_model():
    return testing.make_model


@pytest.fixture(scope="session")
def forward():
    return testing.forward


@pytest.fixture
def make_tokens():
    return testing.make_tokens


@pytest.fixture
def drawn():
    return testing.drawn
