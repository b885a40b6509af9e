"""Does another law of gaps agree? Six encodings, three seeds, each with gaps that are log-uniform
to 8 L in training too, and with names that are set once, so that order does not matter.

python scripts/sweep.py --config=configs/sweeps/variables_laws.py --workdir=runs/laws --workers=2
python scripts/report.py runs/laws --out=report

About a minute and a half a run on one core. The order of encodings depends on the law, so no
sentence about one of them rests on one law.
"""

from configs.sweeps import variables
from posenc_jax.sweeping.grid import axis, chain, product

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
