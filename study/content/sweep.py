"""Reach and order of positions that depend on content, each at rates tuned at L, five seeds.

python scripts/sweep.py --config=study/content/sweep.py --workdir=runs/content --workers=2
python scripts/report.py runs/content --out=report

The data, the steps and the test are those of study/order/sweep.py, whose RoPE, FIRE and forget
gates stand beside these. Rates are tuned as in study/text/sweep.py, by the loss on answers at
L = 64 on a third split.
"""

from posenc_jax.sweeping.grid import axis, product
from posenc_jax.sweeping.rates import Rates
from study.order import sweep as ordered

BY_CONTENT = "relative dape cope stick_breaking selective_rope".split()
ENCODINGS = [*BY_CONTENT, "rope", "fire", "fox"]


def get_config():
    config = ordered.get_config()
    return config | {
        # Seeds vary slowest, so that an interrupted sweep has every encoding.
        "grid": product(axis("seed", range(5)), ordered.jobs(ENCODINGS)),
        "choose": Rates(),
        "fields": config["fields"] | {"data.choose_fraction": 0.1},
        "evaluation": config["evaluation"] | {"extensions": "none,logn"},
    }
