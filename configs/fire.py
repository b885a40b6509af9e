"""FIRE: a learned function of the distance relative to the query's position.

python train.py --config=configs/fire.py --workdir=runs/fire

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "fire"
    return config
