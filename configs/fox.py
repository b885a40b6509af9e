"""Forget gates: a penalty that each layer reads from the content.

python train.py --config=configs/fox.py --workdir=runs/fox

encoding.gate=bias_only learns one slope per head and layer instead, gate=fixed learns none;
encoding.inner=rope also rotates queries and keys; encoding.bias_init=5 starts with open gates.

5 to 6.5 minutes on one CPU core, evaluation included.
Expected bits per byte, as configs/sweeps/fair.py trains and reads it: 1.967 at L and 1.967 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "fox"
    return config
