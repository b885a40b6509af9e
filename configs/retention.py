"""Retention: linear attention whose weights decay with the distance, without a softmax.

python train.py --config=configs/retention.py --workdir=runs/retention

encoding.rotate=False leaves out the rotation, as Lightning attention does.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "retention"
    return config
