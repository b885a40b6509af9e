"""Positions that depend on content under another law: distances uniform, not log-uniform.

python scripts/sweep.py --config=configs/sweeps/content_uniform.py --workdir=runs/even --workers=2
python scripts/report.py runs/even --out=report

The encodings, steps and test of configs/sweeps/content.py, at the rates that it chose
(docs/results/content/choices.csv), three seeds. Here 0.88 of the test's
questions ask for a value beyond L, there 0.43.
"""

from pathlib import Path

from configs.sweeps import content
from posenc_jax.sweeping.choosing import chosen
from posenc_jax.sweeping.grid import axis, product

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "content"


def get_config():
    rates = chosen(RESULTS)
    recipes = [
        {"recipe": f"configs/ordered.py:{name}"} | rates[f"ordered-{name}"]
        for name in content.ENCODINGS
    ]
    config = content.get_config()
    del config["choose"]
    return config | {
        "grid": product(axis("seed", range(3)), recipes),
        "fields": config["fields"] | {"data.gaps": "within"},
        "evaluation": config["evaluation"] | {"extensions": "none"},
    }
