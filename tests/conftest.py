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
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from evaluated import sweep  # noqa: E402, F401
from measuring import measure, settings, subject  # noqa: E402, F401
from running import small_disk, text  # noqa: E402, F401
from sizes import DIMS, VARIANTS, VOCAB  # noqa: E402

import models  # noqa: E402
import posenc_jax  # noqa: E402
from posenc_jax import schemes  # noqa: E402

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
    @functools.cache
    def make(**options):
        fields = {"layers": 2, "width": DIMS.width, "heads": DIMS.heads, "vocab": VOCAB} | options
        return models.Transformer(models.Config(**fields), jax.random.key(0))

    return make


@pytest.fixture(scope="session")
def forward():
    """One compiled forward pass shared by all tests, to save compilation time."""
    return jax.jit(
        lambda model, tokens, encoding, **options: model(tokens, encoding, **options),
        static_argnames="window",
    )


@pytest.fixture
def make_tokens():
    def make(length, batch=1):
        drawn = np.random.default_rng(length).integers(0, VOCAB, (batch, length))
        return jnp.asarray(drawn, jnp.int32)

    return make


@pytest.fixture
def drawn():
    """Redraw the trained leaves of an encoding at random, so that none of them is neutral."""

    def draw(encoding, seed=0):
        leaves, structure = jax.tree.flatten(encoding)
        mask = jax.tree.leaves(posenc_jax.trained_mask(encoding))
        rng = np.random.default_rng(seed)
        new = [
            jnp.asarray(rng.normal(size=jnp.shape(leaf)), jnp.float32) if is_trained else leaf
            for leaf, is_trained in zip(leaves, mask, strict=True)
        ]
        return jax.tree.unflatten(structure, new)

    return draw
