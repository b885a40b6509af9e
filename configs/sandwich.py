"""Sandwich: the inner product of two sinusoidal encodings as a bias.

python train.py --config=configs/sandwich.py --workdir=runs/sandwich

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
Expected bits per byte on the targets of configs/base.py: 2.124 at L and 2.164 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "sandwich"
    return config
