"""Four times the steps: four encodings of the fair zoo at the rates that it chose.

python scripts/sweep.py --config=configs/sweeps/fair_long.py --workdir=runs/fair_long --workers=2
python scripts/yardstick.py runs/fair_long
python scripts/report.py runs/fair_long --out=report

The rates were chosen at 600 steps (docs/results/fair/choices.csv); data, splits and targets are
those of configs/sweeps/fair.py. Whether an order of encodings is one of budgets shows here. 12 runs
of 16 to 20 minutes of one core each (two of 30, beside other work): 2 hours and 14 minutes on two
CPU cores. docs/results/steps.md has what they found.
"""

from configs.sweeps import fair


def get_config():
    config = fair.at_chosen_rates([(name, {}) for name in ("rope", "alibi", "t5", "nope")])
    return config | {"fields": config["fields"] | {"steps": 2_400}}
