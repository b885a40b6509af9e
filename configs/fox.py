"""Forget gates: a penalty that each layer reads from the content."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="fox", gate="full")
    return config
