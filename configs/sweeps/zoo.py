"""Every encoding, three seeds, at L = 128 on the standard library's source, 600 steps.

python scripts/sweep.py --config=configs/sweeps/zoo.py --workdir=runs/zoo --workers=2
python scripts/report.py runs/zoo --out=report

The first twelve encodings, without fox and hybrid, took 97 minutes on two CPU cores (36 runs);
`cope` and `dape` take several times as long.
"""

from posenc_jax.registry import encodings
from posenc_jax.sweeping.grid import axis, product


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in encodings()])
    return {
        # Seeds vary slowest, so that an interrupted sweep has every encoding.
        "grid": product(axis("seed", range(3)), recipes),
        "fields": {},  # of every run, override its recipe
        "evaluation": {"extensions": "all"},  # overrides configs/eval.py
    }
