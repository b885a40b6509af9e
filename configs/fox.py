"""Forgetting Transformer: a penalty by forget gates that each layer computes from content.

python train.py --config=configs/fox.py --workdir=runs/fox

encoding.gate=bias_only learns one slope per head and layer instead, gate=fixed none;
encoding.inner=rope adds rotation; encoding.bias_init=5 starts with open gates.

5 to 6.5 minutes on one CPU core with evaluation.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "fox"
    return config
