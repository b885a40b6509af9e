"""A learned function of the distance relative to the query's position."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="fire", hidden=32)
    return config
