"""A penalty by the square root of the distance."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="root_bias", sharpness=1.0)
    return config
