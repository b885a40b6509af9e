"""Found and order beyond L of FoPE and of RoPE that rotates the same pairs, after 600 and 2,400
steps, each at its own tuned rate.

python scripts/sweep.py --config=study/field/fope.py --workdir=runs/fope --workers=2

The task and the evaluation are those of study/order/budget.py; a run of 2,400 steps has the
rows and the schedule of a trunk of 9,600 that is annealed there.
"""

from posenc_jax.sweeping.grid import axis, product
from posenc_jax.sweeping.rates import Rates
from study.order import budget, rates

SCHEMES = [
    {"recipe": "configs/ordered.py:fope"},
    {"recipe": "configs/ordered.py:prope", "encoding.keep": "turned"},
]
EVALUATION = budget.EVALUATION | {"extensions": "none,yarn:8,pi:8"}


def get_config():
    return {
        "grid": product(axis("seed", range(5)), axis("steps", (600, 2_400)), SCHEMES),
        "choose": Rates(),
        "fields": rates.FIELDS,
        "evaluation": EVALUATION,
    }
