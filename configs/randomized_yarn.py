"""Randomized YaRN: fine-tune a trained RoPE at L with YaRN and positions drawn from scale x L.

python train.py --config=configs/randomized_yarn.py --workdir=runs/randomized_yarn \\
    --config.init_from=runs/rope --config.train_length=128 --config.encoding.inner_length=128

Mehta et al. 2026, arXiv:2606.23687, without their length curriculum. Both lengths must be the L of
the run in init_from; model, text and rate are taken from it as in configs/finetune.py. Repeat the
options of its RoPE, such as --config.encoding.base=500000. Time and loss are not measured.
"""

from configs import finetune


def get_config():
    config = finetune.get_config()
    config.encoding.name = "randomized"  # around RoPE
    config.extension.scale = 8.0
    return config
