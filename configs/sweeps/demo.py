"""Three small models on the built-in text: what `make demo` trains, evaluates and compares.

python scripts/sweep.py --config=configs/sweeps/demo.py --workdir=runs/demo --workers=2

About three minutes on two CPU cores. Its bits are not recorded.
"""

from posenc_jax.sweeping.grid import axis


def get_config():
    return {
        "grid": axis("recipe", [f"configs/{name}.py" for name in ("sinusoidal", "rope", "alibi")]),
        "fields": {
            "train_length": 64,
            "batch_size": 32,
            "steps": 400,
            "warmup_steps": 40,
            "log_every": 10,
            "save_every": 100,
            "wandb.mode": "disabled",
        },
        # Fewer targets than the default's 2,000, to be done in minutes.
        "evaluation": {"extensions": "all", "documents": 24, "windows": 2},
    }
