"""A learned table added to the embeddings."""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="learned")
    return config
