"""Retrieval on `variables`, trained at L = 64, evaluated to 8 L = 512.

python train.py --config=configs/variables.py:rope --workdir=runs/variables-rope

After the colon: any encoding of configs/. About a minute on one CPU core: 0.4M parameters, 600
steps of 32 rows, loss on answers only. To evaluate:

python eval_extrapolation.py --workdir=runs/variables-rope --config.lengths=64,128,256,512 \\
    --config.last=16 --config.protocols=answers,gap

Expected accuracy, mean of five seeds: RoPE 0.25 at L (ceiling 0.25) and
0.55 at 8 L (ceiling 1), with yarn 0.94 at 8 L.
"""

from importlib import import_module

from configs import base
from posenc_jax.runtime.errors import ConfigError

# Lowest training loss among 1, 4 and 16, one seed.
RATES = {"fire": 16.0, "fox": 4.0, "kerple_log": 16.0, "kerple_power": 16.0, "t5": 16.0}


def get_config(encoding="rope"):
    config = base.get_config()
    recipe = import_module(f"configs.{encoding}").get_config()
    if recipe.model != config.model:
        raise ConfigError(
            f"configs/{encoding}.py sets a model of its own; give an encoding, and model fields by "
            "--config.model"
        )
    config.encoding = recipe.encoding
    if recipe.encoding.name == "hybrid":  # of two layers, one is global
        config.encoding.pattern = "local,global"
        if "window" in config.encoding:  # the same share of L
            config.encoding.window = config.encoding.window * 64 // recipe.train_length
    config.encoding_rate = RATES.get(encoding, recipe.encoding_rate)
    config.model.layers = 2
    config.update(train_length=64, steps=600, warmup_steps=60)
    config.data.update(source="synthetic", task="variables", answers_only=True)
    return config
