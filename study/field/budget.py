"""Found and order beyond L of PoPE, RoPE++, retention and hybrids with decay layers.

python scripts/sweep.py --config=study/field/budget.py --workdir=runs/field --workers=2

The task, the budgets and the evaluation are those of study/order/budget.py, with fewer extensions.
"""

from pathlib import Path

from study.field import rates
from study.order import budget

CHOICES = Path(__file__).parent / "rows" / "rates"


def get_config():
    seeds = dict.fromkeys(rates.SCHEMES, 5)
    return budget.get_config() | {
        "grid": budget.grid(rates.SCHEMES, seeds, CHOICES, "runs/field"),
        "evaluation": budget.EVALUATION | {"extensions": "none,yarn:8,pi:8,logn"},
    }
