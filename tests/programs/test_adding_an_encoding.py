"""Adding an encoding is one file in schemes and one in configs, shown on a copy of the project."""

import os
import shutil
import subprocess
import sys

import pytest
from running import ROOT

SCHEME = '''"""A penalty that grows with the square root of the distance."""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, DistanceBias, trained


class RootBias(DistanceBias):
    """Written by a test, arXiv:0000.00000."""

    log_slope: jax.Array = trained()  # [H]

    def curve(self, distance):
        return -jnp.exp(self.log_slope)[:, None] * jnp.sqrt(DISTANCE)[None, :]


def build(dims: Dims, key: jax.Array, *, sharpness: float = 1.0) -> RootBias:
    draw = jax.random.normal(key, (dims.heads,))
    return RootBias(dims=dims, log_slope=sharpness * draw)
'''

RECIPE = '''"""A penalty by the square root of the distance."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="root_bias", sharpness=1.0)
    return config
'''


def run_property_tests(copy, distance, *selection):
    scheme = SCHEME.replace("DISTANCE", distance)
    (copy / "posenc_jax" / "schemes" / "root_bias.py").write_text(scheme)
    (copy / "configs" / "root_bias.py").write_text(RECIPE)
    environment = os.environ | {"PYTHONPATH": str(copy), "COVERAGE_PROCESS_START": ""}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *selection],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_new_encoding_is_tested_and_configured_with_no_other_edit(tmp_path):
    for name in ("posenc_jax", "models", "configs", "tests", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    done = run_property_tests(
        tmp_path,
        "distance.astype(jnp.float32)",
        "-k=root_bias",
        "tests/unit/schemes/test_schemes.py",
        "tests/unit/test_configs.py",
        "tests/unit/test_build.py",
    )
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.rsplit(" passed", 1)[0].split()[-1]) >= 17, done.stdout

    # The same tests find a mistake in it: the slope of a root is infinite at distance 0.
    wrong = "distance * jnp.exp(self.log_slope[0])"
    selection = ["-k=gradients_reach and root_bias", "tests/unit/schemes/test_schemes.py"]
    done = run_property_tests(tmp_path, wrong, *selection)
    assert done.returncode == 1 and "2 failed" in done.stdout, done.stdout
