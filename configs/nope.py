"""No position encoding: word order through the causal mask alone."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="nope")
    return config
