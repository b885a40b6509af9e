"""A penalty in proportion to the distance."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="alibi")
    return config
