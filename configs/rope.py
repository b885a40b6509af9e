"""Rotary position embedding.

python train.py --config=configs/rope.py --workdir=runs/rope

3.5 to 4.3 minutes on two CPU cores.
Expected bits per byte on the targets of configs/base.py: 2.159 at L and 5.508 at 8 L.
"""

from ml_collections import FieldReference

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="rope", base=10_000.0, fraction=1.0, layout="half")
    config.encoding.keep = FieldReference(1.0, field_type=object)  # a share of the pairs, or turned
    config.encoding.update(frequencies="fixed", per="none")  # trained; none, layer, head
    return config
