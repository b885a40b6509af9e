"""Forget gates: a penalty that each layer reads from the content.

python train.py --config=configs/fox.py --workdir=runs/fox

Its time and its bits per byte at L and at 8 L are not measured yet.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="fox", gate="full")
    return config
