"""Four times the steps: four encodings of the fair zoo at the rates that it chose.

python scripts/sweep.py --config=configs/sweeps/fair_long.py --workdir=runs/fair_long --workers=2
python scripts/report.py runs/fair_long --out=report

The rates were chosen at 600 steps (docs/results/fair/choices.csv); data, splits and targets are
those of configs/sweeps/fair.py. Whether an order of encodings is one of budgets shows here.
"""

from pathlib import Path

from configs.sweeps import fair
from posenc_jax.sweeping.choosing import chosen
from posenc_jax.sweeping.grid import axis, product

RATES = Path(__file__).parents[2] / "docs" / "results" / "fair"


def get_config():
    rates = chosen(RATES)
    recipes = [
        {"recipe": f"configs/{name}.py"} | rates[name] for name in ("rope", "alibi", "t5", "nope")
    ]
    config = fair.get_config()
    del config["choose"]
    return config | {
        "grid": product(axis("seed", range(3)), recipes),
        "fields": config["fields"] | {"steps": 2_400},
    }
