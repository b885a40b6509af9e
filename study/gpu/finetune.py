"""Fine-tune the finished run of extend.py for 200 steps at 4 L = 4,096 with YaRN, with pi and
without an extension, and evaluate each to 16,384 tokens.

  python scripts/sweep.py --config=study/gpu/finetune.py --workdir=runs/gpu/finetune \\
      --minutes=9

To start from another run: --config.init_from=RUN.
"""

LENGTH = 4_096


def get_config():
    return {
        "recipe": "configs/finetune.py",
        # Without an extension there is no scale.
        "grid": [
            {"extension.name": "yarn", "extension.scale": 4.0},
            {"extension.name": "pi", "extension.scale": 4.0},
            {"extension.name": "none", "extension.scale": 1.0},
        ],
        "fields": {
            "init_from": "runs/gpu/extend/rope-s0",
            "train_length": LENGTH,
            "steps": 200,
            "save_every": 100,
            "log_every": 10,
            "valid_every": 100,
            "keep": 1,
            "wandb.mode": "disabled",
        },
        "evaluation": {
            "extensions": "none",
            "multiples": "0.0625,0.125,0.25,0.5,1,2,4",
            "tokens_per_call": 131_072,
        },
    }
