"""Found and order beyond L of positions that depend on content, at rates tuned at L, five seeds.

python scripts/sweep.py --config=study/content/sweep.py --workdir=runs/content --workers=2
python scripts/report.py runs/content --out=report

A run takes two to four minutes on one core. Rates are tuned as in study/text/sweep.py, by the loss
on answers at L = 64 on a third split.
"""

from posenc_jax.sweeping.grid import axis, product
from posenc_jax.sweeping.rates import Rates

BY_CONTENT = "relative dape cope stick_breaking selective_rope".split()
ENCODINGS = [*BY_CONTENT, "rope", "fire", "fox"]
L, FAR = 64, 8


def get_config():
    return {
        # Seeds vary slowest, so that an interrupted sweep has every encoding.
        "grid": product(
            axis("seed", range(5)),
            axis("recipe", [f"configs/ordered.py:{name}" for name in ENCODINGS]),
        ),
        "choose": Rates(),
        "fields": {"data.far": float(FAR), "log_every": 100, "data.choose_fraction": 0.1},
        "evaluation": {
            "lengths": f"{L},{FAR * L}",
            "protocols": "found,last_of_two",
            "extensions": "none",
            "window": False,
            "tokens_per_call": 32_768,
        },
    }
