"""Fine-tuning for length: a trained RoPE goes on at 4 L with YaRN in place, as in its paper.

python train.py --config=configs/finetune.py --workdir=runs/yarn4 --config.init_from=runs/rope

The model and the encoding are those of the run it starts from; its L stays that of the formulas. A
few hundred steps at a fifth of the rate are enough.
"""

from configs import rope


def get_config(size="tiny"):
    config = rope.get_config(size)
    scale = 4
    config.extension.name, config.extension.scale = "yarn", float(scale)
    config.train_length *= scale
    config.batch_size //= scale
    config.learning_rate /= 5
    config.warmup_steps = 20
    config.steps = 200
    return config
