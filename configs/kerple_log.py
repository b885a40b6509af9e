"""A learned logarithmic penalty."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding = dict(name="kerple_log")
    return config
