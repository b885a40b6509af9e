"""Rates of the encodings of budget.py on the task in order, tuned at 600 and at 4,800 steps.

python scripts/sweep.py --config=study/order/rates.py --workdir=runs/budget_rates --workers=2

One seed; the choice is by the loss on answers at L on a third split. `choices.csv` has every rate.
"""

from posenc_jax.sweeping.grid import axis, product
from posenc_jax.sweeping.rates import Rates

L, FAR = 64, 8
ENCODINGS = "rope nope fire fox alibi t5 cope".split()
SCHEMES = {name: {"recipe": f"configs/ordered.py:{name}"} for name in ENCODINGS}
TUNED = (600, 4_800)  # steps
# No row is read twice within 9,600 steps of 32 rows.
FIELDS = {
    "schedule": "linear",
    "warmup_steps": 60,
    "data.documents": 320_000,
    "data.far": float(FAR),
    "data.choose_fraction": 0.1,
    "log_every": 100,
    "valid_every": 600,
    "save_every": 480,
}
EVALUATION = {
    "lengths": f"{L},{FAR * L}",
    "last": 16,
    "protocols": "answers",
    "extensions": "none",
    "tokens_per_call": 32_768,
}


def get_config(schemes=SCHEMES):
    return {
        "grid": product(axis("steps", TUNED), list(schemes.values())),
        "choose": Rates(),
        "fields": FIELDS,
        "evaluation": EVALUATION,
    }
