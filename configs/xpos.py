"""xPos: rotation with exponential decay.

python train.py --config=configs/xpos.py --workdir=runs/xpos

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "xpos"
    return config
