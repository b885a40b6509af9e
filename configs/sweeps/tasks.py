"""A task of far retrieval: four encodings trained at L = 64 and an oracle at 8 L, two seeds.

python scripts/sweep.py --config=configs/sweeps/tasks.py --workdir=runs/tasks --workers=2
python scripts/report.py runs/tasks --out=report

The text sets names to values and asks for the latest value of a name. Expect RoPE to lose accuracy
with distance, yarn to restore most of it, and FIRE to need no extension. The oracle is trained on
as many tokens; its errors measure learning, not reach. A run trains for about a minute on one core
and is evaluated for about another. Another task: --config.data.task=passkey.
"""

from posenc_jax.sweeping.grid import axis, chain, product

FAR = 8
ORACLE = {
    "recipe": "configs/variables.py:rope",
    "train_length": 64 * FAR,
    "batch_size": 32 // FAR,
    "data.far": 1.0,
}


def get_config():
    names = ("rope", "nope", "alibi", "fire")
    encodings = axis("recipe", [f"configs/variables.py:{name}" for name in names])
    return {
        "grid": product(axis("seed", range(2)), chain(encodings, [ORACLE])),
        "fields": {"data.far": float(FAR), "log_every": 100},
        "evaluation": {
            "lengths": "64,128,256,512",
            "last": 16,
            "protocols": "answers,gap",
            "extensions": "none,pi,yarn,logn",
            "tokens_per_call": 32_768,
        },
    }
