"""PoPE: entries are lengths, and positions alone are angles, so content and position separate.

python train.py --config=configs/pope.py --workdir=runs/pope

encoding.per_layer=True trains the bias of the angles for each layer.
Time: not measured.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "pope"
    return config
