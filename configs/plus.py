"""RoPE, and beside it the bias of FIRE, whose factors begin as 0.

python train.py --config=configs/plus.py --workdir=runs/plus
python train.py --config=configs/plus.py --config.encoding.added=t5 --workdir=runs/t5

Expected, one seed: a loss of 1.93 bits per byte at L, and of 2.56 at 8 L with YaRN by 8; RoPE
without the bias has 1.93 and 2.58. On a run that was trained without it: configs/ladder.py.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "plus"
    return config
