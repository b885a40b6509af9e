"""Reach and order at other budgets: four encodings of sweep.py, three seeds, with four layers of
width 256, with four times the steps, or at L = 96.

python scripts/sweep.py --config=study/order/sizes.py --workdir=runs/ordered_sizes
python scripts/report.py runs/ordered_sizes --out=report
"""

from posenc_jax.sweeping.grid import axis, chain, product
from study.order import sweep as ordered

LONGER = {"steps": 4_800, "data.documents": 160_000}
LARGER = {"model.layers": 4, "model.width": 256}
OTHER_LENGTH = {"train_length": 96}


def get_config():
    config = ordered.get_config()
    recipes = ordered.jobs(("rope", "fire", "nope", "t5"))
    seeds = axis("seed", range(3))
    return config | {
        "grid": chain(
            product(seeds, [LARGER, LONGER], recipes),
            product(seeds, [OTHER_LENGTH], recipes),
        ),
        "evaluation": config["evaluation"] | {"lengths": "", "multiples": "1,2,4,8"},
    }
