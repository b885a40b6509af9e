"""Found and order beyond L of PoPE, RoPE++, retention, hybrids with decay layers, selective RoPE.

python scripts/sweep.py --config=study/field/budget.py --workdir=runs/field --workers=2

The task, the budgets and the evaluation are those of study/order/budget.py, with fewer extensions.
Of selective RoPE only the trunks are trained.
"""

from pathlib import Path

from study.field import rates
from study.order import budget

CHOICES = Path(__file__).parent / "rows" / "rates"


def get_config():
    seeds = dict.fromkeys(rates.SCHEMES, 5)
    grid = budget.grid(rates.SCHEMES, seeds, CHOICES, "runs/field")
    return budget.get_config() | {
        "grid": [job for job in grid if "selective" not in job["recipe"] or "anneal" not in job],
        "evaluation": budget.EVALUATION | {"extensions": "none,yarn:8,pi:8,logn"},
    }
