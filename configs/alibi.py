"""ALiBi: a linear penalty on distance.

python train.py --config=configs/alibi.py --workdir=runs/alibi

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "alibi"
    return config
