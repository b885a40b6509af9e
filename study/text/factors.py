"""Two factors often bundled in published comparisons, one at a time, at the fair zoo's rates.

python scripts/sweep.py --config=study/text/factors.py --workdir=runs/factors --workers=2
python scripts/report.py runs/fair runs/factors --out=report

A trained first token of each row (`model.bos`), and biases per layer instead of shared ones
(`encoding.per_layer`). The baselines are the same seeds of study/text/sweep.py, with the same
data, splits and targets. 15 runs take 40 minutes on two CPU cores.
"""

from study.text import sweep as fair

FACTORS = {
    "model.bos": ("nope", "t5", "kerple_log"),
    "encoding.per_layer": ("t5", "kerple_log"),
}


def get_config():
    return fair.at_chosen_rates(
        (name, {factor: True}) for factor, names in FACTORS.items() for name in names
    )
