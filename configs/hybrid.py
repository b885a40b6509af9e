"""Hybrid: three layers of RoPE in a window of L / 4, then one full-context layer without position.

python train.py --config=configs/hybrid.py --workdir=runs/hybrid

encoding.pattern=decay,decay,decay,global has linear attention in place of windows, and
encoding.global_rope=True rotates in the full layers. Time: not measured.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "hybrid"
    return config
