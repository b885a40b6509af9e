"""Randomized YaRN: fine-tune a trained RoPE at L with YaRN and positions drawn from scale x L.

python train.py --config=configs/randomized_yarn.py --workdir=runs/randomized_yarn \\
    --config.init_from=runs/rope

Mehta et al. 2026, arXiv:2606.23687, without their length curriculum. Model, encoding, text, length
and rate are taken from the run in init_from as in configs/finetune.py. Time and loss are not
measured.
"""

from configs import finetune


def get_config():
    config = finetune.get_config()
    config.encoding.name = "randomized"  # around the run's own
    config.extension.scale = 8.0
    return config
