"""Sines and cosines added to the embeddings."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="sinusoidal")
    return config
