"""Rotary position embedding."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="rope", base=10_000.0, fraction=1.0, layout="half")
    return config
