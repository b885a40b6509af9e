"""Defaults by size, which every recipe starts from.

The fields, their defaults and what each means are in posenc_jax/config/schema.py and, for the
decoder, in models/config.py; `python train.py --help` lists them.

Learning rate, warm-up and dtype of `small`, `125m` and `1b` are the usual ones (nanoGPT's smallest
model, GPT-3's), those of `base` are between them; none was tuned here.
"""

from ml_collections import ConfigDict

from posenc_jax.config import schema

SIZES = {
    "tiny": dict(layers=4, width=128, heads=4, train_length=128, batch_size=32, steps=600),
    "small": dict(layers=6, width=384, heads=6, train_length=256, batch_size=64, steps=5_000)
    | dict(learning_rate=1e-3, warmup_steps=100, dtype="bfloat16"),
    "base": dict(layers=12, width=512, heads=8, train_length=512, batch_size=64, steps=20_000)
    | dict(learning_rate=1e-3, warmup_steps=1_000, dtype="bfloat16"),
    "125m": dict(layers=12, width=768, heads=12, train_length=1024, batch_size=256, steps=20_000)
    | dict(learning_rate=6e-4, warmup_steps=1_000, dtype="bfloat16"),
    # For eight GPUs, of 8 rows at once each.
    "1b": dict(layers=24, width=2048, heads=16, train_length=2048, batch_size=512, steps=50_000)
    | dict(learning_rate=2e-4, warmup_steps=1_000, dtype="bfloat16")
    | dict(accumulate=8, sharding="fsdp"),
}


def get_config(size: str = "tiny") -> ConfigDict:
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; have: {', '.join(SIZES)}")
    config = schema.training()
    for name, value in SIZES[size].items():
        (config.model if name in config.model else config)[name] = value
    return config
