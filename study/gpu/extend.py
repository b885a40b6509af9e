"""One RoPE of 88M parameters (12 layers of width 768) at L = 1,024, trained for six epochs of 16M
tokens and evaluated with every extension to 16 L; finetune.py starts from it.

Tokens and machine as in zoo.py. Repeat each command until its exit code is 0:

  python scripts/sweep.py --config=study/gpu/extend.py --workdir=runs/gpu/extend \\
      --minutes=9
  python scripts/sweep.py --config=study/gpu/finetune.py --workdir=runs/gpu/finetune \\
      --minutes=9
"""

SIZES = {
    "model.layers": 12,
    "model.width": 768,
    "model.heads": 12,
    "model.dtype": "bfloat16",
    "train_length": 1_024,
    "batch_size": 64,
    "steps": 1_465,  # of 65,536 tokens: six epochs of 16M
}


def get_config():
    return {
        "grid": [{"recipe": "configs/rope.py", "seed": 0}],  # rope-s0
        "fields": SIZES
        | {
            "data.tokens": "prepared/books",
            "learning_rate": 1e-3,
            "warmup_steps": 100,
            "log_every": 50,
            "valid_every": 250,
            "save_every": 250,
            "keep": 1,
            "wandb.mode": "disabled",
        },
        "evaluation": {
            "extensions": "all",
            "multiples": "0.25,0.5,1,2,4,8,16",
            "tokens_per_call": 131_072,
        },
    }
