"""DAPE: an MLP over the scores and biases of all heads, around Kerple's logarithm.

python train.py --config=configs/dape.py --workdir=runs/dape
python train.py --config=configs/dape.py --config.encoding.inner=rope --workdir=runs/dape-rope
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "dape"
    return config
