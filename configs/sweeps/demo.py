"""The sweep of `make demo`: two models of text and one of retrieval.

python scripts/sweep.py --config=configs/sweeps/demo.py --workdir=runs/demo --workers=2

About three minutes on two CPU cores; its results are not recorded.
"""

from posenc_jax.sweeping.grid import axis, chain

ANSWERS = {
    "recipe": "configs/variables.py:rope",
    "evaluation.lengths": "64,128,256,512",
    "evaluation.last": 16,
    "evaluation.protocols": "answers,gap",
    "evaluation.extensions": "none,pi,ntk,yarn",
    "evaluation.documents": 240,
    "evaluation.tokens_per_call": 32_768,
}


def get_config():
    text = axis("recipe", [f"configs/{name}.py" for name in ("rope", "alibi")])
    return {
        "grid": chain([ANSWERS], text),
        "fields": {
            "train_length": 64,
            "steps": 400,
            "warmup_steps": 40,
            "log_every": 10,
            "save_every": 100,
            "wandb.mode": "disabled",
        },
        # Fewer targets than the default of 2,000, to finish in minutes.
        "evaluation": {"extensions": "none,yarn,dynamic_yarn", "documents": 24, "windows": 2},
    }
