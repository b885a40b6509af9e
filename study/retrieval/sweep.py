"""Retrieval on `variables`: twelve encodings, five seeds, and two oracles, two seeds.

python scripts/sweep.py --config=study/retrieval/sweep.py --workdir=runs/variables --workers=2
python scripts/report.py runs/variables --out=report

A run trains for about a minute on one core and is evaluated for about another, rope with its
extensions for longer. The oracles are trained at 8 L on as many tokens; their errors measure
learning, not reach. Another distribution of distances: --config.data.gaps=log. Retrieval without
older settings: --config.data.variant=once.
"""

from posenc_jax.sweeping.grid import axis, chain, product

ENCODINGS = (
    "rope nope alibi fire fox randomized sandwich sinusoidal xpos kerple_log kerple_power t5"
).split()
FAR = 8
ORACLE = {"train_length": 64 * FAR, "batch_size": 32 // FAR, "data.far": 1.0}


def oracles():
    """Jobs of oracles, trained at 8 L on as many tokens."""
    return [{"recipe": f"configs/variables.py:{name}"} | ORACLE for name in ("rope", "fire")]


def get_config():
    encodings = axis("recipe", [f"configs/variables.py:{name}" for name in ENCODINGS])
    # Seeds vary slowest, so that an interrupted sweep has every encoding.
    first, others = axis("seed", range(2)), axis("seed", range(2, 5))
    return {
        "grid": chain(product(first, chain(encodings, oracles())), product(others, encodings)),
        "fields": {"data.far": float(FAR), "log_every": 100},
        "evaluation": {
            "lengths": "64,128,256,512",
            "last": 16,
            "protocols": "answers,gap",
            "extensions": "all,yarn+logn",
            "tokens_per_call": 32_768,
        },
    }
