"""Inkling's relative bias: every query chooses a mixture of biases by distance, up to L tokens.

python train.py --config=configs/relative.py --workdir=runs/relative

encoding.extent=64 ends the bias at 64 tokens; Inkling also scales it with the queries:
--config=configs/ssmax.py --config.encoding.kind=inkling --config.encoding.inner=relative.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "relative"
    return config
