"""The inner product of two sinusoidal encodings as a bias."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="sandwich", dbar=128)
    return config
