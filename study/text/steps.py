"""Four encodings of the fair zoo at its rates, with four times the steps.

python scripts/sweep.py --config=study/text/steps.py --workdir=runs/fair_long --workers=2
python scripts/report.py runs/fair_long --out=report

Tests whether the ranking depends on the training budget. Rates were tuned at 600 steps
(rows/sweep/choices.csv); data, splits and targets are those of study/text/sweep.py. 12 runs of 16
to 20 minutes on one core (two took 30, beside other work): 2 hours 14 minutes on two CPU cores.
"""

from study.text import sweep as fair


def get_config():
    config = fair.at_chosen_rates([(name, {}) for name in ("rope", "alibi", "t5", "nope")])
    return config | {"fields": config["fields"] | {"steps": 2_400}}
