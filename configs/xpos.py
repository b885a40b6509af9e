"""Rotation with a decay.

python train.py --config=configs/xpos.py --workdir=runs/xpos

3.5 to 9 minutes on one CPU core, evaluation included (the range over the zoo).
Expected bits per byte, as configs/base.py reads them: 2.154 at L and 2.758 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "xpos"
    return config
