"""Randomized YaRN: a trained RoPE goes on at its own length L, with YaRN in place and positions
drawn from scale x L. Mehta et al. 2026, arXiv:2606.23687; their length curriculum is not here.

python train.py --config=configs/randomized_yarn.py --workdir=runs/randomized_yarn \\
    --config.init_from=runs/rope --config.train_length=128 --config.encoding.inner_length=128

Both lengths are L, that of the run it starts from, whose model, text and rate are taken over as in
configs/finetune.py. Options of its RoPE are given here too: --config.encoding.base=500000.
Time and expected losses: not measured.
"""

from configs import finetune


def get_config():
    config = finetune.get_config()
    config.encoding.name = "randomized"  # around RoPE
    config.extension.scale = 8.0
    return config
