"""Randomized positions: RoPE with training positions drawn from a range of 8 L.

python train.py --config=configs/randomized.py --workdir=runs/randomized

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
Expected bits per byte on the targets of configs/base.py: 3.308 at L and 3.449 at 8 L.
"""

from ml_collections.config_dict import placeholder

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    # The range max_position defaults to 8 L. inner_length, the L in the formulas of extensions and
    # `logn`, defaults to max_position, so a dynamic scale is 1 up to that length.
    config.encoding.update(
        name="randomized",
        inner="rope",
        max_position=placeholder(int),
        inner_length=placeholder(int),
        evenly=False,
    )
    return config
