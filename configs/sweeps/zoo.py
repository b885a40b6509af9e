"""Every encoding, three seeds, at L = 128 on the standard library's source, with fixed steps.

python scripts/sweep.py --config=configs/sweeps/zoo.py --workdir=runs/zoo
python scripts/report.py runs/zoo --out=report
"""

from ml_collections import ConfigDict

from posenc_jax.catalog import encodings
from posenc_jax.sweeping.grid import axis, product


def get_config():
    config = ConfigDict()
    recipes = axis("recipe", [f"configs/{name}.py" for name in encodings()])
    # Seeds vary slowest, so that a sweep that is cut short has every encoding.
    config.grid = product(axis("seed", range(3)), recipes)
    config.fields = ConfigDict()  # of every run
    config.evaluation = ConfigDict({"extensions": "all"})  # over configs/eval.py
    return config
