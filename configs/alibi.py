"""A penalty in proportion to the distance."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="alibi")
    return config
