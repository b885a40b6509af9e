"""Who finds what stands far back? Twelve encodings, five seeds, and two oracles, two seeds.

python scripts/sweep.py --config=configs/sweeps/variables.py --workdir=runs/variables --workers=2
python scripts/report.py runs/variables --out=report

A run trains for about a minute on one core and is read for about another, rope with all its
extensions for longer. The oracles are trained at 8 L on as many tokens: what they cannot answer
measures learning, not reach. Another law of gaps: --config.data.gaps=log. Reach without order:
--config.data.variant=once.
"""

from posenc_jax.sweeping.grid import axis, chain, product

ENCODINGS = (
    "rope nope alibi fire fox randomized sandwich sinusoidal xpos kerple_log kerple_power t5"
).split()
FAR = 8
ORACLE = {"train_length": 64 * FAR, "batch_size": 32 // FAR, "data.far": 1.0}


def oracles():
    """Trained at 8 L on as many tokens."""
    return [{"recipe": f"configs/variables.py:{name}"} | ORACLE for name in ("rope", "fire")]


def get_config():
    encodings = axis("recipe", [f"configs/variables.py:{name}" for name in ENCODINGS])
    # Seeds vary slowest, so that a sweep that is cut short has every encoding.
    some, others = axis("seed", range(2)), axis("seed", range(2, 5))
    return {
        "grid": chain(product(some, chain(encodings, oracles())), product(others, encodings)),
        "fields": {"data.far": float(FAR), "log_every": 100},
        "evaluation": {
            "lengths": "64,128,256,512",
            "last": 16,
            "protocols": "answers,gap",
            "extensions": "all,yarn+logn",
            "tokens_per_call": 32_768,
        },
    }
