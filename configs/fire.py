"""FIRE: a learned function of the distance relative to the query's position.

python train.py --config=configs/fire.py --workdir=runs/fire

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
Expected bits per byte on the targets of configs/base.py: 2.248 at L and 2.802 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "fire"
    return config
