"""T5: a learned bias per bucket of distances.

python train.py --config=configs/t5.py --workdir=runs/t5

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
Expected bits per byte on the targets of configs/base.py: 2.117 at L and 2.150 at 8 L.
"""

from ml_collections.config_dict import placeholder

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="t5", num_buckets=32, max_distance=128)
    config.encoding.scale = placeholder(float)  # from table to logits; None: sqrt(head size)
    config.encoding_rate = 4.0  # lowest training loss at L = 128 among 1, 4 and 16
    return config
