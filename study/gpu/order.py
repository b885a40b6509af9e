"""Order beyond L at 10.7M and 40M parameters: five encodings, three seeds, L = 512, tested at
4,096.

  python scripts/sweep.py --config=study/gpu/order.py --workdir=runs/gpu/order --minutes=9

2,400 steps of 64 rows, each row read 2.5 times. The rate is that of `small` and `base`, not tuned.
CoPE, which has no kernel, comes last.
"""

from posenc_jax.sweeping.grid import axis, product
from study.order import budget

L, FAR, STEPS, ROWS = 512, 8, 2_400, 64
SIZES = {
    "small": {"model.layers": 6, "model.width": 384, "model.heads": 6, "warmup_steps": 100},
    "base": {"model.layers": 12, "model.width": 512, "model.heads": 8, "warmup_steps": 200},
}


def get_config():
    grid = []
    for names in (("rope", "nope", "fire", "fox"), ("cope",)):
        for model in SIZES.values():
            recipes = axis("recipe", [f"configs/ordered.py:{name}" for name in names])
            grid += product([model], axis("seed", range(3)), recipes)
    return {
        "grid": grid,
        "fields": {
            "model.dtype": "bfloat16",
            "train_length": L,
            "batch_size": ROWS,
            "steps": STEPS,
            "learning_rate": 1e-3,
            "data.documents": STEPS * ROWS * 2 // 5,
            "data.far": float(FAR),
            "log_every": 100,
            "valid_every": 600,
            "save_every": 600,
            "keep": 1,
            "wandb.mode": "disabled",
        },
        "evaluation": {
            "lengths": f"{L},{FAR * L}",
            "protocols": "found,last_of_two",
            "extensions": budget.ROTARY,
            "window": False,
            "tokens_per_call": 262_144,
        },
    }
