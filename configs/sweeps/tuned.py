"""Three encodings on source code, each at rates tuned at L, three seeds.

python scripts/sweep.py --config=configs/sweeps/tuned.py --workdir=runs/tuned --workers=2
python scripts/report.py runs/tuned --out=report

Every encoding is tuned on a third split before its seeds run, and runs/tuned/choices.csv has every
rate with its loss (docs/sweeps.md). Expect about 12 runs of tuning and 9 that are evaluated, of
three minutes each on one core. Source code is held out by package, so that held-out modules share
no package with training. Lengths begin at L, so that more windows fit into a document.
"""

from posenc_jax.sweeping.grid import axis, product
from posenc_jax.sweeping.rates import Rates


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in ("rope", "alibi", "t5")])
    return {
        # Seeds vary slowest, so that an interrupted sweep has every encoding.
        "grid": product(axis("seed", range(3)), recipes),
        "choose": Rates(),
        "fields": {"data.hold_out": "package", "data.choose_fraction": 0.1},
        "evaluation": {
            "multiples": "1,2,4,8",
            "last": 32,
            "windows": 6,
            "documents": 100,
            "protocols": "same_token,nonoverlap",
            "extensions": "none",
        },
    }
