"""Retrieval of the fair zoo's encodings, each at rates tuned at L on `variables`, three seeds.

python scripts/sweep.py --config=study/retrieval/rates.py --workdir=runs/fair_far --workers=2
python scripts/report.py runs/fair_far --out=report

Tuned as in study/text/sweep.py, by the loss on answers at L = 64 on a third split. T5's buckets
end at L here, as by default those beyond 66 tokens would stay untrained. The hybrid has four
layers, the others two. In 600 steps it learned the task neither at its recipe's rate with two or
four layers nor at any of four rates. 65 runs, 30 of them evaluated, take 52 minutes on
two CPU cores.
"""

from posenc_jax.sweeping.grid import axis, product
from posenc_jax.sweeping.rates import Rates
from study.retrieval import sweep as variables
from study.retrieval.shipped import DEEP, WINDOWED
from study.text import sweep as fair

OWN = {
    "t5": {"encoding.max_distance": 64},
    "hybrid_nope": DEEP | WINDOWED,
}


def get_config():
    recipes = [
        {"recipe": f"configs/variables.py:{name}"} | OWN.get(name, {}) for name in fair.ENCODINGS
    ]
    config = variables.get_config()
    return config | {
        "grid": product(axis("seed", range(3)), recipes),
        "choose": Rates(),
        "fields": config["fields"] | {"data.choose_fraction": 0.1, "log_every": 20},
        "evaluation": config["evaluation"] | {"extensions": "none,yarn,logn"},
    }
