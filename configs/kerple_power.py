"""A learned penalty by a power of the distance."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="kerple_power")
    return config
