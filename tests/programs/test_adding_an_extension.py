"""An extension with an option is one new file: named, configured, composed and evaluated."""

import shutil

from running import ROOT, python

USE = """
import posenc_jax
from configs import rope
from posenc_jax import extensions
from posenc_jax.config import building, flags, load
from posenc_jax.evaluation import methods
from posenc_jax.runtime.errors import ConfigError

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
_, recipe, problems = flags.parse(words)
ours = building.extended(load(recipe, more=problems), encoding)
assert (ours.inv_freq == extended.inv_freq).all()
recipe.extension.share = -1.0
try:
    load(recipe)
except ConfigError as error:
    assert error.args == ("share must be a finite number above 0; got -1.0",)
else:
    raise AssertionError
"""


def test_an_extension_with_an_option_is_one_file(tmp_path):
    for name in ("posenc_jax", "models", "configs"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    added = "posenc_jax/extensions/slowed.py"
    shutil.copy(ROOT / "tests/additions" / added, tmp_path / added)
    python("-c", USE, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
