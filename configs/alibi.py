"""A penalty in proportion to the distance.

python train.py --config=configs/alibi.py --workdir=runs/alibi

3.5 to 9 minutes on one CPU core, evaluation included (the range over the zoo).
Expected bits per byte, as configs/base.py reads them: 2.304 at L and 2.312 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "alibi"
    return config
