"""KERPLE: a learned logarithmic penalty on distance.

python train.py --config=configs/kerple_log.py --workdir=runs/kerple_log

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "kerple_log"
    config.encoding_rate = (
        10.0  # of 1, 4 and 10 the one with the lowest loss in training at L = 128
    )
    return config
