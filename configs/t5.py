"""A learned bias per bucket of the distance."""

from ml_collections.config_dict import placeholder

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="t5", num_buckets=32, max_distance=128)
    config.encoding.scale = placeholder(float)  # of the table, to logits; None: sqrt(head size)
    config.encoding_rate = 4.0  # of 1, 4 and 16 the one with the lowest loss in training at L = 128
    return config
