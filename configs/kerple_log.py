"""A learned logarithmic penalty."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="kerple_log")
    return config
