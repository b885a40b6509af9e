"""RoPE at positions drawn from a range of 8 L in training.

python train.py --config=configs/randomized.py --workdir=runs/randomized

3.5 to 9 minutes on one CPU core, evaluation included (the range over the zoo).
Expected bits per byte, as configs/base.py reads them: 3.308 at L and 3.449 at 8 L.
"""

from ml_collections.config_dict import placeholder

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    # The range, `max_position`, is 8 L. It is also L in the formulas of extensions and `logn`: a
    # dynamic scale is the length read over max_position, and 1 up to there.
    config.encoding.update(
        name="randomized", inner="rope", max_position=placeholder(int), evenly=False
    )
    return config
