"""The inner product of two sinusoidal encodings as a bias."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="sandwich", dbar=128)
    return config
