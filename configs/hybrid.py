"""Three layers of RoPE in a window of L / 4, then one without position that sees everything.

python train.py --config=configs/hybrid.py --workdir=runs/hybrid

Its time and its bits per byte at L and at 8 L are not measured yet.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "hybrid"
    return config
