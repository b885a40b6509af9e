"""A learned penalty by a power of the distance."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="kerple_power")
    config.encoding_rate = 4.0  # of 1, 4 and 10 the one with the lowest loss in training at L = 128
    return config
