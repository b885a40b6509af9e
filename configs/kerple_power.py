"""A learned penalty by a power of the distance."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding = dict(name="kerple_power")
    return config
