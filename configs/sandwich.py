"""Sandwich: the inner product of two sinusoidal encodings as a bias.

python train.py --config=configs/sandwich.py --workdir=runs/sandwich

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "sandwich"
    return config
