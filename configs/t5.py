"""A learned bias per bucket of the distance."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding = dict(name="t5", num_buckets=32, max_distance=128)
    return config
