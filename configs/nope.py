"""No position encoding: word order through the causal mask alone."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="nope")
    return config
