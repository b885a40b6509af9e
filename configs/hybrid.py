"""Hybrid: three layers of RoPE in a window of L / 4, then one full-context layer without position.

python train.py --config=configs/hybrid.py --workdir=runs/hybrid

Time and bits per byte at L and 8 L are not measured yet.
"""

from ml_collections import FieldReference
from ml_collections.config_dict import placeholder

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="hybrid", pattern="local,local,local,global", chunked=False)
    config.encoding.window = placeholder(int)  # of local layers, including the query; None: L / 4
    config.encoding.update(base=10_000.0, global_rope=False, layout="half")
    config.encoding.local_base = placeholder(float)  # None: base
    config.encoding.global_base = placeholder(float)
    config.encoding.global_keep = FieldReference(1.0, field_type=object)  # a share, or turned
    config.encoding.update(first_full=False, last_full=False)
    return config
