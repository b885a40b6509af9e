"""Perplexity and retrieval of one model on 80% source code and 20% variables: three encodings, two
seeds.

python scripts/sweep.py --config=study/mixture/sweep.py --workdir=runs/mix --workers=2
for run in runs/mix/*-s?; do python eval_extrapolation.py --workdir=$run; done
python scripts/report.py runs/mix --evaluation=variables --out=report

The sweep evaluates the variables; the line after it evaluates the source code.
"""

from posenc_jax.sweeping.grid import axis, product
from study.retrieval import sweep as variables


def get_config():
    encodings = axis("recipe", [f"configs/mixture.py:{name}" for name in ("rope", "alibi", "fire")])
    config = variables.get_config()
    return config | {
        "grid": product(axis("seed", range(2)), encodings),
        "fields": {"log_every": 100},  # far = 8 is the default of the task
        "evaluation": config["evaluation"] | {"data.source": "variables"},
    }
