"""Every encoding, three seeds, at L = 128 on the standard library's source, 600 steps each.

python scripts/sweep.py --config=configs/sweeps/zoo.py --workdir=runs/zoo --workers=2
python scripts/report.py runs/zoo --out=report

Twelve encodings took 97 minutes on two CPU cores (36 runs, rows in docs/results/zoo); fox and
hybrid were not among them.
"""

from posenc_jax.registry import encodings
from posenc_jax.sweeping.grid import axis, product


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in encodings()])
    return {
        # Seeds vary slowest, so that a sweep that is cut short has every encoding.
        "grid": product(axis("seed", range(3)), recipes),
        "fields": {},  # of every run, over its recipe
        "evaluation": {"extensions": "all"},  # over configs/eval.py
    }
