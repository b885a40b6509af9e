"""Randomized positions: RoPE with training positions drawn from a range of 8 L.

python train.py --config=configs/randomized.py --workdir=runs/randomized

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    # max_position, the range, is 8 L. inner_length, L in the formulas of extensions and `logn`, is
    # max_position, so that a dynamic scale is the length read over it, and 1 up to there.
    config.encoding.name = "randomized"
    return config
