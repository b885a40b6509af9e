"""An extension with an option is one new file: named, configured, composed and evaluated."""

import os
import shutil
import subprocess
import sys

from running import ROOT

EXTENSION = '''
"""A part of the pairs slowed."""

import numpy as np

from posenc_jax.encoding import fixed
from posenc_jax.extensions._record import extension
from posenc_jax.extensions.rotary import ROTATION
from posenc_jax.checks import positive
from posenc_jax.schemes.rope import RoPE


@extension(ROTATION, scale="given", of=RoPE)
def slowed(rope: RoPE, scale: float, *, share: float = 0.5) -> RoPE:
    """Nobody 2026: the slowest `share` of the pairs divided by the scale."""
    pairs = rope.inv_freq.shape[-1]
    slow = np.arange(pairs) >= pairs * (1 - positive("share", share))
    return rope.replace(inv_freq=fixed(np.where(slow, rope.inv_freq / scale, rope.inv_freq)))
'''
USE = """
import posenc_jax
from configs import rope
from posenc_jax import building, command, extensions, lineage, validation
from posenc_jax.evaluation import methods

encoding = posenc_jax.build("rope", posenc_jax.Dims(2, 8, 16, 16))
extended = posenc_jax.extend("slowed:2:share=0.25+logn", encoding, 1.0)
assert list(encoding.inv_freq / extended.inv_freq) == [1, 1, 1, 2] and extended.logn
names = [method.name for method in methods.methods("all,slowed:share=1", encoding, 4.0)]
assert "slowed" in names and names[-1] == "slowed:share=1"
assert methods.mistakes("slowed:2,slowed:shares=1") == [
    "unknown option of extension 'slowed': 'shares'; did you mean 'share'? have: share"
]
words = ["train.py", "--config=configs/rope.py", "--config.extension.scale=2"]
words += ["--config.extension.name=slowed", "--config.extension.share=0.25"]
config = lineage.resolved(command.parse(words)[1])
assert validation.validate(config) == building.mistakes(config) == []
ours = building.extended(config, encoding)
assert (ours.inv_freq == extended.inv_freq).all()
config.extension.share = -1.0
assert building.mistakes(config) == ["share must be a finite number above 0; got -1.0"]
"""


def test_an_extension_with_an_option_is_one_file(tmp_path):
    for name in ("posenc_jax", "models", "configs"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    (tmp_path / "posenc_jax" / "extensions" / "slowed.py").write_text(EXTENSION)
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
