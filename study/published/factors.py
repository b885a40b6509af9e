"""Extensions of RoPE on `variables` at equal and at other factors, and frequencies that are clipped
at evaluation; eight seeds.

python scripts/sweep.py --config=study/published/factors.py --workdir=runs/factors --workers=2

The runs are those of study/retrieval/sweep.py: 600 steps at L = 64.
"""

from posenc_jax.sweeping.grid import axis, product

FACTORS = {"yarn": (4, 6, 8, 12, 16), "ntk": (8, 16, 32, 128, 512, 2_048), "pi": (6, 8, 12, 16, 24)}
METHODS = [f"{name}:{factor}" for name, own in FACTORS.items() for factor in own]
METHODS += ["none", "ntk:8:rule=gradient", "drop", "drop:clip=soft"]


def get_config():
    return {
        "grid": product(axis("seed", range(8)), [{"recipe": "configs/variables.py:rope"}]),
        "fields": {"data.far": 8.0, "log_every": 100},
        "evaluation": {
            "lengths": "64,512",
            "last": 16,
            "protocols": "answers",
            "extensions": ",".join(METHODS),
            "window": False,
            "tokens_per_call": 32_768,
        },
    }
