"""FoPE: each pair turns by a trained mixture of the frequencies that complete a turn within L.

python train.py --config=configs/fope.py --workdir=runs/fope

encoding.per_layer=True trains the mixtures for each layer.
Time: not measured.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "fope"
    return config
