"""xPos: rotation with exponential decay.

python train.py --config=configs/xpos.py --workdir=runs/xpos

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
Expected bits per byte on the targets of configs/base.py: 2.154 at L and 2.758 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "xpos"
    return config
