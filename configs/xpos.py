"""Rotation with a decay."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="xpos", base=10_000.0, fraction=1.0, layout="half")
    return config
