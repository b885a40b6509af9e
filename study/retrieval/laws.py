"""Retrieval under other distributions: six encodings, three seeds, with distances log-uniform to
8 L also in training, and with names set once, so that order does not matter.

python scripts/sweep.py --config=study/retrieval/laws.py --workdir=runs/laws --workers=2
python scripts/report.py runs/laws --out=report

A run takes about 1.5 minutes on one core. The ranking of encodings depends on the distribution, so
no claim about an encoding rests on one.
"""

from posenc_jax.sweeping.grid import axis, chain, product
from study.retrieval import sweep as variables

ENCODINGS = "rope nope alibi fire kerple_log t5".split()


def get_config():
    laws = [{"data.gaps": "log"}, {"data.variant": "once"}]
    encodings = axis("recipe", [f"configs/variables.py:{name}" for name in ENCODINGS])
    oracles = product(variables.oracles(), axis("seed", [0]))
    runs = chain(product(axis("seed", range(3)), encodings), oracles)
    config = variables.get_config()
    return config | {
        "grid": product(laws, runs),
        "evaluation": config["evaluation"] | {"extensions": "none,pi,yarn,logn,yarn+logn"},
    }
