"""The k-th of eight items, L = 64, rows of 512 tokens (kth.py): five encodings, three seeds.

python scripts/sweep.py --config=study/field/items.py --workdir=runs/items --workers=2

run.sh also evaluates them at L, on rows drawn like training.
"""

from posenc_jax.sweeping.grid import axis, product

ENCODINGS = "rope nope alibi fox fire".split()


def get_config():
    schemes = axis("recipe", [f"configs/variables.py:{name}" for name in ENCODINGS])
    return {
        "grid": product(axis("seed", range(3)), schemes),
        "fields": {
            "data.task": "study.field.kth",
            "data.documents": 82_000,  # more than are read
            "data.far": 8.0,
            "data.choose_fraction": 0.1,
            "steps": 2_400,
            "warmup_steps": 100,
            "log_every": 100,
        },
        "evaluation": {
            "lengths": "512",
            "last": 16,
            "protocols": "answers",
            "extensions": "none,yarn:8,ntk:8,pi:8,dca,self_extend,logn",
            "window": False,
            "tokens_per_call": 32_768,
        },
    }
