"""Rates of the schemes of budget.py, tuned as those of study/order/rates.py.

python scripts/sweep.py --config=study/field/rates.py --workdir=runs/field_rates --workers=2
"""

from study.order import rates

HYBRID = {"recipe": "configs/ordered.py:hybrid", "encoding.pattern": "decay,global"}
SCHEMES = {
    "pope": {"recipe": "configs/ordered.py:pope"},
    "rope++": {"recipe": "configs/ordered.py:rope", "encoding.imaginary": True},
    "retention": {"recipe": "configs/ordered.py:retention"},
    "decay, nope": HYBRID,
    "decay, rope": HYBRID | {"encoding.global_rope": True},
    "selective": {"recipe": "configs/ordered.py:selective_rope"},
    "selective, random": {
        "recipe": "configs/ordered.py:selective_rope",
        "encoding.steps": "random",
    },
}


def get_config():
    return rates.get_config(SCHEMES)
