"""Which tasks measure reach? Each learned by RoPE at L and, as its oracle, at 8 L.

python scripts/sweep.py --config=configs/sweeps/tasks.py --workdir=runs/tasks --workers=2
python scripts/report.py runs/tasks/*task=who* --out=report

A task is admitted where the oracle goes 80% of the way from chance to the ceiling; the page says
so. Two to four minutes a run on one core. The same number of tokens for all of them.
"""

from configs.sweeps import variables
from posenc_jax.sweeping.grid import axis, chain, product

TASKS = "code needle passkey who delayed_repeat".split()


def get_config():
    rope = {"recipe": "configs/variables.py:rope"}
    config = variables.get_config()
    return config | {
        "grid": product(axis("data.task", TASKS), chain([rope], variables.oracles()[:1])),
        "fields": config["fields"] | {"steps": 1800},
        "evaluation": config["evaluation"]
        | {"extensions": "none,yarn,logn", "protocols": "answers,gap,pairs"},
    }
