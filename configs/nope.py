"""No position encoding; word order is visible only through the causal mask.

python train.py --config=configs/nope.py --workdir=runs/nope

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "nope"
    return config
