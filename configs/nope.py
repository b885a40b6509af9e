"""No position encoding; word order is visible only through the causal mask.

python train.py --config=configs/nope.py --workdir=runs/nope

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
Expected bits per byte on the targets of configs/base.py: 3.286 at L and 3.854 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "nope"
    return config
