"""Three small models on the built-in text, in minutes on two cores: what `make demo` trains."""

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
