"""T5: a learned bias per bucket of distances.

python train.py --config=configs/t5.py --workdir=runs/t5

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "t5"
    config.encoding_rate = 4.0  # of 1, 4 and 16 the one with the lowest loss in training at L = 128
    return config
