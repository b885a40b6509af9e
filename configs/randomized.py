"""RoPE at positions drawn from a range of 8 L in training."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="randomized", inner="rope", max_position=1024, evenly=False)
    return config
