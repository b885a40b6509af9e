"""Scalable softmax: RoPE with scores scaled by the log of the number of keys and a trained factor.

python train.py --config=configs/ssmax.py --workdir=runs/ssmax
python train.py --config=configs/ssmax.py --config.encoding.inner=fire:hidden=16 --workdir=runs/fire

5 to 6.5 minutes on one CPU core with evaluation.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "ssmax"
    return config
