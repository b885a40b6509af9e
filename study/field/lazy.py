"""Hybrids of a local layer and a full one, by the window of the local layer.

python scripts/sweep.py --config=study/field/lazy.py --workdir=runs/lazy --workers=2

A checkpoint every 120 steps, which study.field.reach evaluates.
"""

from posenc_jax.sweeping.grid import axis, product
from posenc_jax.sweeping.rates import Rates
from study.order import rates

STEPS, EACH = 2_400, 120
WINDOWS = (rates.L // 16, rates.L // 4, rates.L)


def get_config():
    hybrids = product(
        axis("recipe", ["configs/ordered.py:hybrid"]),
        axis("encoding.window", WINDOWS),
        axis("encoding.global_rope", (False, True)),
    )
    # An interruption saves at other steps too.
    every = {"steps": STEPS, "save_every": EACH, "keep": 2 * STEPS // EACH}
    return {
        "grid": product(axis("seed", range(5)), hybrids),
        "choose": Rates(),
        "fields": rates.FIELDS | every,
        "evaluation": {
            "lengths": f"{rates.L}",
            "protocols": "found",
            "extensions": "none",
            "window": False,
            "tokens_per_call": 32_768,
        },
    }
