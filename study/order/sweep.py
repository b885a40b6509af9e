"""Reach and order: twelve encodings trained at L = 64 and four oracles at 8 L, five seeds each.

python scripts/sweep.py --config=study/order/sweep.py --workdir=runs/ordered --workers=2
python scripts/report.py runs/ordered --out=report

A run takes two to four minutes on one core, its evaluation one to six. The oracles are trained on
as many tokens.
"""

from posenc_jax.sweeping.grid import axis, chain, product

ENCODINGS = (
    "rope nope alibi t5 fire kerple_log sandwich sinusoidal randomized xpos fox hybrid_nope"
).split()
FAR = 8
ORACLE = {"train_length": 64 * FAR, "batch_size": 32 // FAR, "data.far": 1.0}
ROTARY = "none,pi:8,ntk_by_parts:8,yarn:2,yarn:4,yarn:8,yarn:16,dynamic_yarn,self_extend,dca,logn"


def jobs(names):
    return axis("recipe", [f"configs/ordered.py:{name}" for name in names])


def get_config():
    oracles = [job | ORACLE for job in jobs(("rope", "fire", "nope", "t5"))]
    seeds = axis("seed", range(5))
    return {
        "grid": chain(product(seeds, jobs(ENCODINGS)), product(seeds, oracles)),
        "fields": {"data.far": float(FAR), "log_every": 100},
        "evaluation": {
            "lengths": "64,128,256,512",
            "last": 16,
            "protocols": "answers,gap,reach,latest,older",
            "extensions": ROTARY,
            "tokens_per_call": 32_768,
        },
    }
