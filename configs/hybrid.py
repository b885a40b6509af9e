"""Hybrid: three layers of RoPE in a window of L / 4, then one full-context layer without position.

python train.py --config=configs/hybrid.py --workdir=runs/hybrid

Time: not measured.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "hybrid"
    return config
